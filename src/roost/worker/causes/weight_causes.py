"""Causes with files of weights: a file that cannot be read, or weights that do not fit the model."""

from __future__ import annotations

import re

from roost.base.exception_record import ExceptionRecord
from roost.base.text.word_list import join_names
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, rule_by_text

_REFUSED = re.compile(r"Unsupported (?:global: GLOBAL|class) (\S+)")
_KEYS = re.compile(r'"([^"]+)"')
_MISMATCH = re.compile(
    r"size mismatch for (\S+): copying a param with shape (.+?) from checkpoint, "
    r"the shape in current model is (.+?)\.(?:\n|\Z)"
)
_SHAPE = re.compile(r"torch\.Size\((.*)\)")


def refused_by_weights_only(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A file refused by torch.load with weights_only, which is its default."""
    if not record.is_a("UnpicklingError") or not record.text.startswith("Weights only load failed"):
        return None
    match = _REFUSED.search(record.text)
    if match is None:
        return Cause(
            "torch.load cannot read the file: probably torch.save did not write it "
            "(a failed download is often a web page)",
            "check its first bytes; write weights with torch.save(model.state_dict(), path)",
        )
    name = match[1].removesuffix(".")
    return Cause(
        f"torch.load refused the file: it contains {name}, and loading that would run code from the file",
        "save a state_dict and load that; if you trust the source of the file: "
        f"`with torch.serialization.safe_globals([{name}]): torch.load(...)`",
    )


def state_dict_mismatch(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """load_state_dict with the weights of another model."""
    match = re.match(r"Error\(s\) in loading state_dict for (\w+):", record.text)
    if match is None or not record.is_a("RuntimeError"):
        return None
    missing, unexpected = (
        _keys_after(record.text, f"{word} key(s) in state_dict: ") for word in ("Missing", "Unexpected")
    )
    sizes = [
        f"{name} is {_shape(theirs)} in the file and {_shape(ours)} here"
        for name, theirs, ours in _MISMATCH.findall(record.text)
    ]
    parts = [f"not in the file: {join_names(missing)}"] if missing else []
    parts += [f"only in the file: {join_names(unexpected)}"] if unexpected else []
    parts += [join_names(sizes, 2)] if sizes else []
    return Cause(f"the weights do not fit {match[1]}: {'; '.join(parts)}", _how_to_fit(unexpected, sizes))


def _keys_after(text: str, title: str) -> list[str]:
    _, found, rest = text.partition(title)
    return _KEYS.findall(rest.partition("\n")[0]) if found else []


def _shape(text: str) -> str:
    match = _SHAPE.match(text)
    return match[1] if match else text


def _how_to_fit(unexpected: list[str], sizes: list[str]) -> str:
    for prefix in ("module.", "_orig_mod."):
        if unexpected and all(name.startswith(prefix) for name in unexpected):
            return f"remove {prefix!r} from the names: the model was wrapped when it was saved"
    if sizes:
        return "build the model with the sizes it was saved with, or leave out these keys with strict=False"
    return "load the weights into the class they were saved from, or use strict=False to load those that fit"


CAUSES: tuple[CauseRule, ...] = (
    refused_by_weights_only,
    state_dict_mismatch,
    rule_by_text(
        "RuntimeError",
        r"PytorchStreamReader failed reading zip archive",
        "the file of weights is cut off or damaged",
        "copy or download it again",
    ),
    rule_by_text(
        "RuntimeError",
        r"Attempting to deserialize object on (?:a )?(\w+) device(?: \d+)? but",
        "the file contains tensors of a {0} device that this machine does not have",
        "use torch.load(path, map_location=self.device)",
    ),
)
