"""Puts weights into a module, as far as they fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import CheckpointError
from roost.train.weights import weight_names
from roost.train.weights.load_report import LoadReport

_EXTRA_STATE = "_extra_state"
_BATCH_COUNT = "num_batches_tracked"
"""Files of an older torch lack it; only a normalisation without a momentum computes with it."""


class WeightFit:
    """Which weight of a file goes where in a module; nothing is changed before `load`.

    Parameters and buffers go by their names in the module's state_dict. Numbers are converted to the type
    that the module has, within one kind: no float becomes a whole number. What the state_dict does not name
    stays as it was built: buffers that are not persistent.

    Args:
        module: Takes them.
        weights: By the names of the file.
        mapping: See `names.mapped`. Where it is empty, no name is found as it is, and all fit with their
            shapes under one other beginning, and no second one, that one is taken.
    """

    def __init__(
        self, module: nn.Module, weights: Mapping[str, Any], mapping: Mapping[str, str | None] | None = None
    ) -> None:
        self._module, self._weights = module, weights
        self._ours: dict[str, Any] = module.state_dict(keep_vars=True)
        self._names = weight_names.ModuleNames(self._ours)
        self._hidden = weight_names.ModuleNames(
            name for name, _ in module.named_buffers() if name not in self._ours
        )
        self._values: dict[str, Any] = {}
        self._found: dict[str, list[str]] = {
            key: [] for key in ("unexpected", "mismatched", "left_out", "notes")
        }
        self._converted: Counter[str] = Counter()
        self.proposals: list[tuple[str, str, int]] = []
        """Mappings of one beginning that would fit more, and how many names; the best first."""
        self._mapping = dict(mapping or {})
        if not any(self._names.find(weight_names.map_name(name, self._mapping) or "") for name in weights):
            self._propose()
        for name, value in weights.items():
            self._place(name, value)
        if self._found["unexpected"] and not self.proposals:
            self._propose(adopt=False)
        self.report = self._report()

    # ---- names ------------------------------------------------------------------------------------------

    def _propose(self, *, adopt: bool = True) -> None:
        theirs = {
            weight_names.strip_wrappers(n): tuple(v.shape)
            for n, v in self._weights.items()
            if isinstance(v, Tensor)
        }
        ours = {name: tuple(one.shape) for name, one in self._ours.items() if isinstance(one, Tensor)}
        direct = sum(ours.get(name) == shape for name, shape in theirs.items())
        self.proposals = [one for one in weight_names.propose_mappings(theirs, ours) if one[2] > direct]
        whole = [one for one in self.proposals if one[2] == len(theirs)]
        # Of "a." -> "b.a." and "" -> "b." each says the same where all begin with "a.".
        meant = {tuple(here + n[len(there) :] for n in theirs) for there, here, _ in whole}
        if adopt and len(meant) == 1 and not self._mapping:
            there, here, _ = whole[0]
            self._mapping = {there: here}
            self._found["notes"].append(
                f"the names begin otherwise here, and fit in one way only: mapping: {format_mapping(there, here)}"
            )

    def _place(self, name: str, value: Any) -> None:
        target = weight_names.map_name(name, self._mapping)
        if target is None or not (isinstance(value, Tensor) or name.endswith(_EXTRA_STATE)):
            self._found["left_out"].append(name)
            return
        ours = self._names.find(target)
        if ours is None and self._hidden.find(target):
            self._found["left_out"].append(f"{name} (a buffer that is not persistent)")
        elif ours is None or ours in self._values:
            self._found["unexpected"].append(
                name if target in (name, weight_names.strip_wrappers(name)) else f"{name} -> {target}"
            )
        elif why := "" if ours.endswith(_EXTRA_STATE) else _mismatch_reason(value, self._ours[ours]):
            self._found["mismatched"].append(f"{ours} {why}")
        else:
            self._values[ours] = value
            if isinstance(value, Tensor) and value.dtype != self._ours[ours].dtype:
                self._converted[f"{_dtype_name(value)} there, {_dtype_name(self._ours[ours])} here"] += 1

    # ---- what came of it --------------------------------------------------------------------------------

    def _report(self) -> LoadReport:
        tensors = [name for name in self._ours if not name.endswith(_EXTRA_STATE)]
        given = {id(self._ours[name]): name for name in self._values}  # tied weights have several names
        bad = {text.partition(" ")[0] for text in self._found["mismatched"]}
        absent = [n for n in self._ours if id(self._ours[n]) not in given and n not in bad]
        kept = [name for name in absent if name.endswith((_BATCH_COUNT, _EXTRA_STATE))]
        for name in self._values:
            other = given[id(self._ours[name])]
            if other != name and not _are_equal(self._values[name], self._values[other]):
                self._found["notes"].append(
                    f"{name} and {other} are one tensor here and two there: the latter is taken"
                )
        return LoadReport(
            num_tensors=len(tensors),
            loaded=[name for name in tensors if id(self._ours[name]) in given],
            missing=[name for name in absent if name not in kept],
            kept=kept,
            converted=[f"{text} ({number})" for text, number in self._converted.items()],
            unused=weight_names.unused_keys(self._weights, self._mapping),
            **self._found,
        )

    def load(self) -> None:
        """Copies what fits into the module.

        Raises:
            CheckpointError: A module that loads its state in a way of its own refuses it.
        """
        try:
            self._module.load_state_dict(self._values, strict=False)
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"the module refuses its state: {' '.join(str(error).split())[:600]}"
            ) from error


def format_mapping(there: str, here: str) -> str:
    """A mapping of one beginning, as a config has it."""
    return f'{{"{there}": "{here}"}}'


def _mismatch_reason(theirs: Tensor, ours: Tensor) -> str:
    """Why a tensor cannot be put into another one; empty where it can."""
    if theirs.shape != ours.shape:
        return f"is {_format_shape(theirs)} there, {_format_shape(ours)} here"
    kinds = [(t.is_complex(), t.is_floating_point(), t.dtype is torch.bool) for t in (theirs, ours)]
    if kinds[0] != kinds[1]:
        return f"is of {_dtype_name(theirs)} there, of {_dtype_name(ours)} here"
    if theirs.dtype != ours.dtype and not _fits_dtype(theirs, ours.dtype):
        return f"has values of {_dtype_name(theirs)} there that {_dtype_name(ours)} cannot hold"
    return ""


def _fits_dtype(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether no value becomes another number (of whole ones), or infinite."""
    converted = tensor.to(dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        return bool(torch.equal(converted.to(tensor.dtype), tensor))
    wide = torch.complex64 if dtype.is_complex else torch.float32
    return bool(
        (
            converted.to(wide).isfinite()
            | ~tensor.to(tensor.dtype if tensor.dtype.itemsize > 2 else wide).isfinite()
        ).all()
    )


def _are_equal(one: Any, other: Any) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _format_shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"
