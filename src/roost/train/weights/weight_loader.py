"""Loads weights into a module, as far as they fit, and reports which did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from roost.base.errors import CheckpointError
from roost.train.accelerators.device_errors import is_device_error
from roost.train.model.nested_tensors import format_shape
from roost.train.weights import weight_names
from roost.train.weights.weight_names import format_names

_EXTRA_STATE = "_extra_state"
_BATCH_COUNT = "num_batches_tracked"
"""Files of an older torch lack this buffer; only a normalization without momentum uses it."""


class WeightFit:
    """Assigns the weights of a file to the tensors of a module; nothing is changed before `load`.

    Parameters and buffers are found by their names in the module's state_dict. Values are converted to the
    dtype of the module, within one kind: floats never become integers. Buffers that are not persistent stay
    as they were built.

    Args:
        module: The module that gets the weights.
        weights: The weights by their names in the file.
        mapping: See `weight_names.map_name`. If it is empty, no name is found unchanged, and all names fit
            with their shapes under exactly one other prefix, that prefix is used.
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
        """Mappings of one prefix under which more names would fit: (prefix in the file, prefix here, number
        of names), the best first."""
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
        # "a." -> "b.a." and "" -> "b." mean the same if all names begin with "a.".
        meant = {tuple(here + n[len(there) :] for n in theirs) for there, here, _ in whole}
        if adopt and len(meant) == 1 and not self._mapping:
            there, here, _ = whole[0]
            self._mapping = {there: here}
            self._found["notes"].append(
                "the names have another prefix here and fit in one way only; "
                f"mapping: {format_mapping(there, here)}"
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
                self._converted[
                    f"{_dtype_name(value)} in the file, {_dtype_name(self._ours[ours])} here"
                ] += 1

    # ---- the result -------------------------------------------------------------------------------------

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
                    f"{name} and {other} are one tensor here and two in the file: {other} is used"
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
        """Copies the weights that fit into the module.

        Raises:
            CheckpointError: A module with its own way of loading refuses its state.
        """
        try:
            self._module.load_state_dict(self._values, strict=False)
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            if is_device_error(error):
                raise
            raise CheckpointError(
                f"the module refuses its state: {' '.join(str(error).split())[:600]}"
            ) from error


def format_mapping(there: str, here: str) -> str:
    """A mapping of one prefix, as in a config."""
    return f'{{"{there}": "{here}"}}'


def _mismatch_reason(theirs: Tensor, ours: Tensor) -> str:
    """Why a tensor of the file cannot be copied into one of the module; empty if it can."""
    if theirs.shape != ours.shape:
        return f"is {format_shape(theirs)} in the file, {format_shape(ours)} here"
    kinds = [(t.is_complex(), t.is_floating_point(), t.dtype is torch.bool) for t in (theirs, ours)]
    if kinds[0] != kinds[1]:
        return f"is {_dtype_name(theirs)} in the file, {_dtype_name(ours)} here"
    if theirs.dtype != ours.dtype and not _fits_dtype(theirs, ours.dtype):
        return f"has {_dtype_name(theirs)} values in the file that {_dtype_name(ours)} cannot hold"
    return ""


def _fits_dtype(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether a conversion changes no integer and makes no finite value infinite."""
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


class LoadReport(Struct, frozen=True, kw_only=True):
    """The result of loading weights. Names are those of the module, except in `unexpected` and `left_out`,
    which are those of the file."""

    num_tensors: int
    """Parameters and persistent buffers of the module."""
    loaded: list[str] = []
    missing: list[str] = []
    """Tensors of the module that are not in the file."""
    unexpected: list[str] = []
    """Tensors of the file that are not in the module."""
    mismatched: list[str] = []
    """Tensors in both that do not fit, each with the reason."""
    left_out: list[str] = []
    """Entries of the file left out by the mapping, or because they are not weights."""
    kept: list[str] = []
    """State of the module that is not a weight and not in the file: it stays as it was built."""
    converted: list[str] = []
    """Conversions of dtypes with their number: ``float16 in the file, float32 here (20)``."""
    unused: list[str] = []
    """Keys of the mapping with which no name of the file begins."""
    notes: list[str] = []
    """Further remarks for the user."""

    @property
    def summary(self) -> str:
        """``18 of 20 tensors``."""
        return f"{len(self.loaded)} of {self.num_tensors} tensor{'' if self.num_tensors == 1 else 's'}"

    def problems(self, *, missing: bool = True) -> list[str]:
        """Returns what did not fit, as parts of a sentence; empty if everything did.

        Args:
            missing: Whether tensors that the file lacks count.
        """
        found = [
            _part("missing", "not in the file", self.missing) if missing else "",
            _part("unexpected", "not in the model", self.unexpected),
            _part("mismatched", "", self.mismatched, is_text=True),
            _part("of the mapping", "no name in the file begins so", [repr(key) for key in self.unused]),
        ]
        return [part for part in found if part]

    def lines(self) -> list[str]:
        """Returns a line for everything but the number of loaded tensors."""
        found = [
            *self.problems(),
            _part("left out", "", self.left_out),
            _part("kept as built", "not in the file", self.kept),
            _part("converted", "", self.converted, is_text=True),
        ]
        return [*filter(None, found), *self.notes]


def _part(title: str, why: str, names: Sequence[str], *, is_text: bool = False) -> str:
    if not names:
        return ""
    shown = "; ".join([*names[:4], *([f"and {len(names) - 4} more"] if len(names) > 4 else [])])
    reason = f" ({why})" if why else ""
    return f"{len(names)} {title}{reason}: {shown if is_text else format_names(names)}"
