"""Metrics between the step and the row: device tensors go in; floats come out only when a row is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.package.records import STATS
from roost.train.accelerators.device_errors import is_device_error
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed.ranks import ALONE, Ranks

Value = Tensor | float
Names = tuple[str, ...]
_Entry = tuple[Value, Mapping[str, Value], int]
"""The weight of a step, its values, its number."""
_Totals = dict[str, tuple[float, float]]
"""By name: the sum of weight x value, and the sum of the weights."""
FINITE_SUFFIXES = ("loss", "grad_norm")
"""The endings of names of values that must be finite, except statistics (`STATS`)."""
_LOGGED_SKIPPED = "skipped?"
"""The skip flag of logged values: a skipped step is counted by the flag of the step itself only."""
_SKIP_FLAGS = ("skipped", _LOGGED_SKIPPED)
_UNRECORDED = {*_SKIP_FLAGS, "weight"}
"""Names that are not recorded as values."""
_NO_STEP = 2**30
_FOLD_STEPS = 1024
"""Steps after which waiting tensors are summed on their device, so that memory stays bounded."""


class Events:
    """Weighted means over the steps since the last row.

    `put` only appends (well below a microsecond a step); the sums are computed by `row`, the only host
    synchronisation. Each rank has its own window, and all share one row: `row`, `peek` and `bad_step` read
    the values of all ranks, so every rank must call them.

    Args:
        ranks: The ranks that train together.
    """

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self._ranks = ranks
        self._waiting: list[_Entry] = []
        self._logged: list[Mapping[str, Value]] | None = None
        """The values logged in the running step; None between steps."""
        self._step = 0
        self._newest_skipped: Value | None = None
        """The skip flag of the newest step."""
        self._names: set[str] = set()
        """The names of all values that any row of the run had."""
        self._sums: dict[Names, tuple[Tensor, Tensor]] = {}
        """For each set of names of one step: (names,) sums of weight x value, and (1,) sum of weights."""
        self._first_bad: list[Tensor] = []
        """() each: the first step whose loss or gradient norm is not finite, or `_NO_STEP`."""
        self.first_bad: int | None = None
        """The first non-finite step of the newest row; None if all were finite."""

    def __bool__(self) -> bool:
        return bool(self._waiting or self._sums)

    def begin_step(self) -> None:
        """Begins a step: values logged from now on belong to the step of the next `put`."""
        self._logged = []

    def log(self, values: Mapping[str, Value], *, of_step: bool = False) -> None:
        """Adds values with weight 1, whatever the weight of their step. If the step is skipped, they count in
        no mean either.

        Args:
            values: By name.
            of_step: Between two steps: the values belong to the newest step.
        """
        if self._logged is not None:
            self._logged.append(values)
            return
        if of_step and self._newest_skipped is not None:
            values = {**values, _LOGGED_SKIPPED: self._newest_skipped}
        self._waiting.append((1.0, values, self._step))

    def put(self, values: Mapping[str, Value], weight: Value = 1.0, step: int = 0) -> None:
        """Adds the values of one step: numbers or tensors with one element, on any device.

        Args:
            values: By name; must not be changed afterwards. A value "weight" takes precedence over
                ``weight``. With "skipped" other than 0 the step counts in no mean; a row has the number of
                skipped steps.
            weight: The weight of this step in the mean, for example its number of samples or tokens.
            step: The number of the step, for `first_bad`.
        """
        waiting = self._waiting
        if self._logged:
            flag = {_LOGGED_SKIPPED: values["skipped"]} if "skipped" in values else {}
            waiting += [(1.0, {**one, **flag}, step) for one in self._logged]
        self._logged, self._step, self._newest_skipped = None, step, values.get("skipped")
        waiting.append((weight, values, step))
        if len(waiting) >= _FOLD_STEPS:
            self._fold()

    def _fold(self) -> None:
        """Sums the waiting steps: one stack for all steps with the same names, usually all of them."""
        groups, self._waiting = _grouped_by_names(self._waiting), []
        for names, entries in groups.items():
            table, column = _values_and_weights(names, entries)
            self._first_bad += _first_bad(names, table, entries)
            total, weight = (table * column).sum(0), column.sum(0)
            if "skipped" in names:
                total[names.index("skipped")] = table[:, names.index("skipped")].sum()
            if names in self._sums:
                before = self._sums[names]  # from a checkpoint: on the CPU
                total, weight = before[0].to(table) + total, before[1].to(table) + weight
            self._sums[names] = (total, weight)

    def bad_step(self) -> int | None:
        """Returns the first step since the last row whose loss or gradient norm is not finite on any rank. A
        sync point; the window stays open and unchanged."""
        found = list(self._first_bad)
        for names, entries in _grouped_by_names(self._waiting).items():
            found += _first_bad(names, _values_and_weights(names, entries)[0], entries)
        first = _NO_STEP
        if found:
            first = int(min(torch.stack([step.to(found[-1].device) for step in found]).tolist()))
        if self._ranks.are_several:
            first = min(
                first for [first] in self._ranks.control.exchange([first], "the save of a checkpoint").wait()
            )
        return first if first < _NO_STEP else None

    def row(self) -> dict[str, float]:
        """Returns the weighted mean of every name since the last row, and starts a new window. A sync
        point."""
        totals, first = self._read()
        if self._ranks.are_several:
            every = self._ranks.control.gather((totals, first), "a row of metrics")
            self._ranks.warn_of_partial_values("train/", [own.keys() - _UNRECORDED for own, _ in every])
            totals, first = _merged_totals(every)
        self.first_bad = first if first < _NO_STEP else None
        skipped, _ = totals.pop("skipped", (0.0, 0.0))
        for name in ("weight", _LOGGED_SKIPPED):
            totals.pop(name, None)
        # If every step was skipped there is no mean; for a loss with weight 0 it is 0 / 0.
        row = {n: _mean(*pair) for n, pair in totals.items() if pair[1] or not skipped}
        self._names.update(row)
        return {**row, "skipped": skipped} if skipped else row

    def _read(self) -> tuple[_Totals, int]:
        """Ends the window; returns its totals, and its first non-finite step or `_NO_STEP`."""
        self._fold()
        sums, self._sums = self._sums, {}
        bad, self._first_bad = [step.reshape(1) for step in self._first_bad], []
        if not sums:
            return {}, _NO_STEP
        table = next(iter(sums.values()))[0]
        parts = [part for pair in sums.values() for part in pair]
        numbers = iter(torch.cat([part.to(table) for part in [*bad, *parts]]).tolist())
        first = min((int(next(numbers)) for _ in bad), default=_NO_STEP)
        totals: _Totals = {}
        for names in sums:
            found = [next(numbers) for _ in names]
            weight = next(numbers)
            for name, total in zip(names, found, strict=True):
                before = totals.get(name, (0.0, 0.0))
                totals[name] = (before[0] + total, before[1] + weight)
        return totals, first

    def peek(self) -> dict[str, float]:
        """Returns what `row` would return now, bit for bit; the window stays open. A sync point."""
        kept = self._sums, self._waiting, self._first_bad, self.first_bad
        self._sums, self._first_bad = dict(self._sums), list(self._first_bad)
        try:
            return self.row()
        finally:
            self._sums, self._waiting, self._first_bad, self.first_bad = kept

    def has_reported(self, name: str) -> bool:
        """Whether a row of this run, or a `peek`, had this value before."""
        return name in self._names

    def state_dict(self) -> dict[str, Any]:
        """Returns the open window, so that a checkpoint never splits a row, and the names of earlier
        values."""
        return {
            "names": sorted(self._names),
            "sums": [[list(names), total, weight] for names, (total, weight) in self._sums.items()],
            "waiting": [[weight, dict(values), step] for weight, values, step in self._waiting],
            "first_bad": self._first_bad,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self._names = set(state.get("names", ()))
        self._sums = {tuple(names): (total, weight) for names, total, weight in state["sums"]}
        self._waiting = [
            (weight, values, step[0] if step else 0) for weight, values, *step in state["waiting"]
        ]
        self._first_bad = list(state.get("first_bad", ()))

    def merge(self, state: dict[str, Any]) -> None:
        """Adds another rank's open window, from its `state_dict`: for a run that continues with fewer
        ranks."""
        other = Events()
        other.load_state_dict(state)
        other._fold()
        self._fold()
        self._names |= other._names
        self._first_bad += other._first_bad
        for names, (total, weight) in other._sums.items():
            if "skipped" in names:
                total = total.clone()
                total[names.index("skipped")] = 0.0  # every rank has counted these steps
            if names in self._sums:
                before = self._sums[names]
                total, weight = before[0] + total.to(before[0]), before[1] + weight.to(before[1])
            self._sums[names] = (total, weight)


def _merged_totals(every: Sequence[tuple[_Totals, int]]) -> tuple[_Totals, int]:
    """Returns the totals of all ranks, added in the order of the ranks, and the first non-finite step of
    any."""
    totals: _Totals = {}
    for own, _ in every:
        for name, (total, weight) in own.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + weight)
    if "skipped" in totals:  # a step is skipped on all ranks, or on none
        totals["skipped"] = max(own.get("skipped", (0.0, 0.0)) for own, _ in every)
    return totals, min(first for _, first in every)


def _grouped_by_names(entries: Sequence[_Entry]) -> dict[Names, list[_Entry]]:
    groups: dict[Names, list[_Entry]] = {}
    for entry in entries:
        if entry[1]:  # else the step records nothing: mode dry, or no optimizer was due
            groups.setdefault(tuple(entry[1]), []).append(entry)
    return groups


def _values_and_weights(names: Names, entries: Sequence[_Entry]) -> tuple[Tensor, Tensor]:
    """Returns (steps, names) values and (steps, 1) weights of these steps; 0 for a skipped step."""
    table = _table(names, [values[name] for _, values, _ in entries for name in names])
    weights = [values.get("weight", weight) for weight, values, _ in entries]
    column = _table(("weight",), weights).to(table, non_blocking=True)
    flag = next((place for place, name in enumerate(names) if name in _SKIP_FLAGS), None)
    return (table, column) if flag is None else _without_skipped(flag, table, column)


def _first_bad(names: Names, table: Tensor, entries: Sequence[_Entry]) -> list[Tensor]:
    """Returns () the first non-finite step, on the device; empty if no value of the steps must be finite."""
    columns = [place for place, name in enumerate(names) if must_be_finite(name)]
    if not columns:
        return []
    numbers = torch.tensor([step for _, _, step in entries]).to(table.device, non_blocking=True)
    good = table[:, columns].isfinite().all(1)
    return [torch.where(good, _NO_STEP, numbers).min()]


def must_be_finite(name: str) -> bool:
    """Whether a non-finite value of this name, with or without ``train/``, ends the run."""
    return name.endswith(FINITE_SUFFIXES) and not name.startswith(STATS)


def _mean(total: float, weight: float) -> float:
    return total / weight if weight else math.nan  # as a tensor's division would


def _without_skipped(place: int, table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sets the values and weights of skipped steps to 0: they may be NaN, and 0 times NaN is NaN."""
    flag = table[:, place].unsqueeze(1)
    kept = torch.where(flag != 0, torch.zeros_like(table), table)
    kept[:, place] = flag.squeeze(1)
    return kept, torch.where(flag != 0, torch.zeros_like(weights), weights)


def _table(names: Names, values: list[Any]) -> Tensor:
    """Returns (steps, names) in float64 (float32 if the device has no float64), from values in that order."""
    try:
        return _stacked(values).reshape(-1, len(names))
    except (RuntimeError, TypeError, ValueError) as error:
        if is_device_error(error):  # a row is the first to wait for the device
            raise
        bad = next((place for place, value in enumerate(values) if not _is_number(value)), 0)
        raise ContractError(
            "is not a single number",
            setting=f"train/{names[bad % len(names)]}",
            received=_description(values[bad]),
            fix="return tensors with one element from loss(), for example a mean over the batch",
        ) from error


def _stacked(values: list[Any]) -> Tensor:
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors:
        return torch.tensor(values, dtype=torch.float64).reshape(len(values))
    # Only of one dtype: stacking would round a large whole number to the dtype of a loss.
    if len(tensors) == len(values) and len({tensor.dtype for tensor in tensors}) == 1:
        try:
            return torch.stack(values).detach().to(_wide_dtype(tensors[0].device)).reshape(len(values))
        except RuntimeError as error:
            if is_device_error(error):
                raise
            return _one_by_one(values, tensors)  # on several devices, or of shapes like () and (1,)
    return _one_by_one(values, tensors)


def _one_by_one(values: list[Any], tensors: list[Tensor]) -> Tensor:
    # Tensors from a checkpoint are on the CPU; they move to the device of the others.
    device = next((t.device for t in tensors if t.device.type != "cpu"), tensors[0].device)
    return torch.stack([_scalar(value, device, _wide_dtype(device)) for value in values])


def _scalar(value: Any, device: torch.device, wide: torch.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(device, wide).reshape(())
    return torch.tensor(value, dtype=wide).to(device, non_blocking=True).reshape(())


def _wide_dtype(device: torch.device) -> torch.dtype:
    return torch.float64 if accelerator_of(device).has_float64 else torch.float32


def _is_number(value: object) -> bool:
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)


def _description(value: object) -> object:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else value
