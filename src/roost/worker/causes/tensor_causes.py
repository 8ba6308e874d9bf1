"""Causes in the code of a Runner: shapes, dtypes, gradients, optimizers."""

from __future__ import annotations

import re

from roost.base.exception_record import ExceptionRecord
from roost.base.traceback_frames import library_name
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, rule_by_text
from roost.worker.ranks.rank_environment import read_rank_environment

_MATRICES = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")


def wrong_number_of_features(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Shapes of a matrix product that do not fit, mostly in a Linear layer."""
    match = _MATRICES.match(record.text) if record.is_a("RuntimeError") else None
    if match is None:
        return None
    rows, got, expected, _ = match.groups()
    if record.frames and record.frames[-1].filename.endswith("/torch/nn/modules/linear.py"):
        description = f"an nn.Linear takes {expected} features and got {got} (a batch of {rows}x{got})"
        return Cause(description, f"flatten or reshape its input, or build it with in_features={got}")
    return Cause(
        f"a matrix of {rows}x{got} cannot be multiplied by one with {expected} rows",
        "make the two shapes fit",
    )


_TYPES = re.compile(
    r"(?:\w+ and \w+ must have the same dtype, but got (\w+) and (\w+)"
    r"|Input type \((?!torch\.)([\w ]+)\) and (?:weight|bias) type \(([\w ]+)\) should be the same"
    r"|expected scalar type (\w+) but found (\w+)"
    r"|expected m1 and m2 to have the same dtype, but got: (\w+) != (\w+))"
)


def mixed_dtypes(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Two dtypes in one operation."""
    match = _TYPES.match(record.text) if record.is_a("RuntimeError") else None
    if match is None:
        return None
    one, other = filter(None, match.groups())
    is_double = "double" in (one.lower(), other.lower())
    fix = (
        "call .float() in the dataset (NumPy makes 64-bit numbers)"
        if is_double
        else "convert both to one dtype, with .float()"
    )
    return Cause(f"one operation got tensors of two dtypes: {one} and {other}", fix)


def embedding_index_out_of_range(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """An index that an embedding does not have; torch only says "in self"."""
    is_known = record.is_a("IndexError") and record.text == "index out of range in self"
    if not is_known or not any(
        frame.filename.endswith("/torch/nn/modules/sparse.py") for frame in record.frames
    ):
        return None
    return Cause(
        "an index is not below the num_embeddings of an nn.Embedding, or below 0",
        "make num_embeddings larger than the largest index; check padding and unknown words",
    )


def batch_norm_of_one_sample(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A batch norm in training that got one sample: mostly the last batch of an epoch, or its shard."""
    known = "Expected more than 1 value per channel when training"
    if not record.is_a("ValueError") or not record.text.startswith(known):
        return None
    own = read_rank_environment()
    share = f": the shard of one of {own.world_size} ranks" if own is not None else ""
    return Cause(
        f"a batch norm in training got one sample, which has no variance{share}",
        "give the DataLoader drop_last=True, or a larger batch_size"
        if context.is_dlnest
        else "set data.drop_last: true, which leaves out the short last batch of an epoch, or a larger "
        "data.batch_size",
    )


_ARGUMENTS = re.compile(r"(?:\w+\.)*(\w+)\.__init__\(\) (?:takes|missing|got)\b")


def wrong_constructor_arguments(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A Runner or Dataset whose ``__init__`` does not take the arguments of roost's call."""
    match = _ARGUMENTS.match(record.text) if record.is_a("TypeError") else None
    if match is None or not record.frames:
        return None
    last = record.frames[-1]
    if library_name(last.filename) != "roost" or "/project/" not in last.filename:
        return None
    return Cause(
        f"{match[1]}.__init__() does not fit roost's call: a Runner gets (args, info), a Dataset (args)",
        "remove __init__ and create everything in build(), where self.args is set",
    )


CAUSES: tuple[CauseRule, ...] = (
    wrong_number_of_features,
    mixed_dtypes,
    embedding_index_out_of_range,
    batch_norm_of_one_sample,
    wrong_constructor_arguments,
    rule_by_text(
        "RuntimeError",
        r"Given groups=\d+, weight of size .*, "
        r"expected input(\[.*\]) to have (\d+) channels, but got (\d+) channels",
        "a convolution takes {1} channels and got {2} (its input is {0})",
        "build it with in_channels={2}, or bring the samples to (batch, channels, ...)",
    ),
    rule_by_text(
        "IndexError",
        r"Target (-?\d+) is out of bounds\.",
        "a class label is {0}, which is no index of the model's outputs",
        "use labels from 0 to the number of classes - 1, and one output of the last layer for each class",
    ),
    rule_by_text(
        "RuntimeError",
        r"expected target dtype to be Long or Byte, but got (\w+)|expected scalar type Long but found (\w+)",
        "class labels must be integers (torch.long), and are {0}{1}",
        "call labels.long(), or use a loss for probabilities",
    ),
    rule_by_text(
        "ValueError",
        r"Target size \(torch\.Size\((.*)\)\) must be the same as input size \(torch\.Size\((.*)\)\)",
        "the loss compares targets of shape {0} with outputs of shape {1}",
        "give both one shape, for example by outputs.squeeze(1)",
    ),
    rule_by_text(
        "RuntimeError",
        r"grad can be implicitly created only for scalar outputs",
        "backward() was called on a tensor with more than one element",
        "reduce the loss first, for example loss.mean()",
    ),
    rule_by_text(
        "RuntimeError",
        r"element 0 of tensors does not require grad and does not have a grad_fn",
        "backward() was called on a tensor that depends on no trainable parameter",
        "compute the loss from the model's output, without detach(), .item() or torch.no_grad()",
    ),
    rule_by_text(
        "RuntimeError",
        r"Trying to backward through the graph a second time",
        "backward() was called twice through one graph: a tensor of an earlier step was kept with its graph",
        "detach() the tensors that are carried from step to step (a hidden state, a running loss)",
    ),
    rule_by_text(
        "RuntimeError",
        r"one of the variables needed for gradient computation has been modified by an inplace operation",
        "a tensor that backward() needs was changed in place after it was used",
        "write x = x + y instead of x += y, relu(x) instead of relu_(x); "
        "torch.autograd.set_detect_anomaly(True) names the operation",
    ),
    rule_by_text(
        "ValueError",
        r"Tried to step (\d+) times\. The (?:specified|total) number of (?:total )?steps is (\d+)",
        "OneCycleLR was built for {1} steps, and this was step {0}",
        'set `total_steps: "${{total_steps}}"` in the config (with unit: step)',
    ),
    rule_by_text(
        "TypeError",
        r"(\w+)\.step\(\) missing 1 required positional argument: 'closure'",
        "{0} needs a closure, which roost's step does not pass",
        "override Runner.update() and call the optimizer's step(closure) there, or use another optimizer",
    ),
    rule_by_text(
        "RuntimeError",
        r"SparseAdam does not support dense gradients",
        "SparseAdam got a dense gradient: it works for nn.Embedding(sparse=True) only",
        "list only such embeddings in its `params`, and use another optimizer for the rest",
    ),
    rule_by_text(
        "AttributeError",
        r"cannot assign (?:module|parameters?) before Module\.__init__\(\) call",
        "a module was assigned before nn.Module.__init__() was called",
        "call super().__init__() first; a Runner needs no __init__: create modules in build()",
    ),
)
