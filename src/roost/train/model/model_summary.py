"""A table of a model: its modules, the shapes of their outputs, their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roost.train.distributed import sharded_tensors
from roost.train.model.nested_tensors import format_shapes, nested_tensors

_MAX_ROWS = 50
_MAX_DEPTH = 6
_NO_CONTEXT: AbstractContextManager[object] = nullcontext()


@dataclass
class ForwardTrace:
    """Output shapes and activation memory, recorded in one forward pass."""

    shapes: dict[str, str] = field(default_factory=dict)
    """The output shape of each module at its first call, by name: ``64x10``."""
    activations: int = 0
    """Bytes that the pass keeps for the backward pass, without the weights and the batch."""


def trace_forward(
    module: nn.Module,
    forward: Callable[[Any], Any],
    batch: Any,
    *,
    context: AbstractContextManager[object] = _NO_CONTEXT,
) -> ForwardTrace:
    """Runs one forward pass with gradients and records shapes and activation memory. The pass draws random
    numbers and updates running statistics as any other.

    Args:
        module: The module whose submodules are observed.
        forward: Computes the loss of a batch.
        batch: The batch, on the device of the module.
        context: Entered around the pass.

    Raises:
        Exception: Any error of the pass.
    """
    trace = ForwardTrace()
    known = {
        _address(t)
        for t in [*module.parameters(), *module.buffers(), *nested_tensors(batch, max_depth=_MAX_DEPTH)]
    }

    def keep(tensor: Tensor) -> Tensor:
        if (address := _address(tensor)) not in known:
            known.add(address)
            trace.activations += _storage_bytes(tensor)
        return tensor

    with ExitStack() as stack:
        for name, part in module.named_modules():
            handle = part.register_forward_hook(_shape_recorder(trace.shapes, name))
            stack.callback(handle.remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
        with torch.enable_grad(), context:
            loss = forward(batch)  # keep the graph alive while counting: freed memory would be used again
        del loss
    return trace


def _shape_recorder(shapes: dict[str, str], name: str) -> Callable[[nn.Module, Any, Any], None]:
    def note(part: nn.Module, given: Any, output: Any) -> None:
        if name not in shapes:
            shapes[name] = format_shapes(output, max_depth=_MAX_DEPTH)

    return note


def _address(tensor: Tensor) -> Any:
    if tensor.layout is not torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.device, sharded_tensors.local_shard(tensor).untyped_storage().data_ptr()


def _storage_bytes(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return tensor.numel() * tensor.element_size()
    return int(tensor.untyped_storage().nbytes())


class ModuleRow(NamedTuple):
    """A row of the table: one module."""

    name: str
    kind: str
    output: str
    parameters: int
    """Values in the module and its submodules, each counted once."""
    trained: str
    """``all``, ``none`` or ``some``; empty if the module has no parameters."""


def module_rows(module: nn.Module, shapes: Mapping[str, str] | None = None) -> list[ModuleRow]:
    """Returns rows for the modules, to the depth at which there are at most 50; deeper modules are counted
    in their parent.

    Args:
        module: The whole model.
        shapes: The output shapes, by module name.
    """
    named = dict(module.named_modules())
    for depth in range(_MAX_DEPTH, 0, -1):
        names = [name for name in named if name.count(".") < depth]
        if len(names) <= _MAX_ROWS:
            break
    return [_module_row(name, named[name], (shapes or {}).get(name, "")) for name in names]


def _module_row(name: str, module: nn.Module, shape: str) -> ModuleRow:
    found = list(module.parameters())
    trained = [p for p in found if p.requires_grad]
    word = "" if not found else "all" if len(trained) == len(found) else "some" if trained else "none"
    return ModuleRow(
        name or "(all)",
        sharded_tensors.unsharded_class(module).__name__,
        shape,
        sum(p.numel() for p in found),
        word,
    )


def format_table(found: Sequence[ModuleRow]) -> list[str]:
    """Returns the rows as lines, below a line of titles."""
    cells = [["MODULE", "CLASS", "OUTPUT", "PARAMETERS", "TRAINED"]]
    cells += [[row.name, row.kind, row.output, f"{row.parameters:,}", row.trained] for row in found]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    return ["  ".join(_cells(line, widths)).rstrip() for line in cells]


def _cells(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, (text, width) in enumerate(zip(line, widths, strict=True)):
        yield text.rjust(width) if column == 3 else text.ljust(width)
