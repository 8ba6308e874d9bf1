"""The sums of metrics during an evaluation, kept for each batch.

They are added in the order of the batches, so the result does not depend on which rank computed a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed.ranks import Ranks

_FOLD_BATCHES = 1024
"""Batches after which their values become one tensor: a separate tensor takes half a kilobyte of a GPU."""
NumberedTensors = list[tuple[int, Tensor]]
"""Tensors with the number of their batch."""


@dataclass
class _Metric:
    """The sums of one metric, for each batch that has it."""

    place: tuple[int, int]
    """The number of the first batch, and the position in its output: they define the order of the results."""
    batches: list[tuple[int, int]] = field(default_factory=list)
    """Number and size of each batch."""
    waiting: list[Tensor] = field(default_factory=list)
    """() each: the sum of the values of a batch."""
    folded: list[Tensor] = field(default_factory=list)

    def add(self, number: int, num_samples: int, total: Tensor) -> None:
        self.batches.append((number, num_samples))
        self.waiting.append(total)
        if len(self.waiting) == _FOLD_BATCHES:
            self._fold()

    def _fold(self) -> None:
        if self.waiting:
            self.folded.append(torch.stack([one.to(self.waiting[0].device) for one in self.waiting]))
            self.waiting = []

    def totals(self) -> list[float]:
        """Returns the sum of each batch. A sync point."""
        self._fold()
        return [total for part in self.folded for total in part.tolist()]


_MetricTotals = tuple[tuple[int, int], list[tuple[int, int]], list[float]]
"""One metric as plain data: place, batches, sum of each batch."""


class MetricSums:
    """The sums of all metrics that one rank measured on a split.

    Args:
        keeps_values: Whether the values of all samples are kept.
    """

    def __init__(self, *, keeps_values: bool) -> None:
        self._keeps_values = keeps_values
        self._metrics: dict[str, _Metric] = {}
        self._values: dict[str, NumberedTensors] = {}
        self._places: dict[str, tuple[int, int]] = {}
        """The place of each name in `_values`, as `_Metric.place`."""

    def add(self, number: int, output: Mapping[str, Tensor], num_samples: int) -> None:
        """Adds the output of ``Runner.evaluate`` for a batch.

        Raises:
            ContractError: The number of values of a metric differs from the number of samples.
        """
        for place, (name, tensor) in enumerate(output.items()):
            total = metric_total(name, tensor, num_samples)
            if total is not None:
                metric = self._metrics.setdefault(name, _Metric((number, place)))
                metric.add(number, num_samples, total)
            if self._keeps_values and tensor.dim():
                self._places.setdefault(name, (number, place))
                self._values.setdefault(name, []).append((number, tensor.detach().cpu()))

    def totals(self) -> dict[str, _MetricTotals]:
        """Returns the metrics as plain data. A sync point."""
        return {name: (one.place, one.batches, one.totals()) for name, one in self._metrics.items()}

    def values(self, ranks: Ranks) -> dict[str, Tensor]:
        """Returns (samples, ...) for each name: the values of all ranks in the order of the batches, on every
        rank.

        Raises:
            ContractError: The rows of one name have different shapes.
        """
        found: dict[str, Tensor] = {}
        for name in _names_in_order(ranks.control.gather(self._places, "summarize()")):
            own = self._values.get(name, [])
            if ranks.are_several:
                own = _unpacked(itertools.chain(*ranks.control.gather(_packed(own), "summarize()")))
            found[name] = _joined(name, [tensor for _, tensor in own])
        return found


def means(rank_totals: Sequence[Mapping[str, _MetricTotals]]) -> dict[str, float]:
    """Returns the mean of each metric over all ranks. It is bit for bit that of one process, because the sums
    are added in the order of the batches."""
    results: dict[str, float] = {}
    for name in _names_in_order(
        [{name: place for name, (place, *_) in rank.items()} for rank in rank_totals]
    ):
        parts = [rank[name] for rank in rank_totals if name in rank]
        total, count = 0.0, 0
        batches = sorted(
            itertools.chain(*(zip(batches, totals, strict=True) for _, batches, totals in parts))
        )
        for (_, num_samples), one in batches:
            total, count = total + one, count + num_samples
        results[name] = total / count
    return results


def metric_total(name: str, tensor: Tensor, num_samples: int) -> Tensor | None:
    """Returns () the sum of one metric's values in a batch; None if the shape is not that of a metric.

    Args:
        name: The name of the metric.
        tensor: (num_samples,) values, or () the mean of the batch.
        num_samples: Samples of the batch.

    Raises:
        ContractError: The number of values differs from ``num_samples``.
    """
    if name == "id" or tensor.dim() > 1 or tensor.is_complex():
        return None
    if tensor.dim() == 1 and len(tensor) != num_samples:
        raise ContractError(
            f"evaluate() returned {len(tensor)} values for a batch of {num_samples} samples",
            setting=name,
            fix="return one value per sample (B,) or the mean of the batch ()",
        )
    # float64 even for float32 values: a mean over a million samples keeps its digits.
    wide = tensor.detach().to(torch.float64 if accelerator_of(tensor.device).has_float64 else torch.float32)
    return wide.sum() if wide.dim() else wide * num_samples


def _names_in_order(places: Iterable[Mapping[str, tuple[int, int]]]) -> list[str]:
    """Returns the names of all ranks, in the order in which one process would have seen them."""
    first: dict[str, tuple[int, int]] = {}
    for rank in places:
        for name, place in rank.items():
            first[name] = min(place, first.get(name, place))
    return sorted(first, key=lambda name: first[name])


def _packed(parts: NumberedTensors) -> list[tuple[list[int], list[int], Tensor]]:
    """Joins batches of one shape and dtype, with their numbers and sizes: pickling a tensor costs 30 µs."""
    groups = itertools.groupby(parts, key=lambda part: (part[1].shape[1:], part[1].dtype))
    alike = [list(group) for _, group in groups]
    return [
        (
            [number for number, _ in group],
            [len(one) for _, one in group],
            torch.cat([one for _, one in group]),
        )
        for group in alike
    ]


def _unpacked(packed: Iterable[tuple[list[int], list[int], Tensor]]) -> NumberedTensors:
    parts = [
        part
        for numbers, rows, tensor in packed
        for part in zip(numbers, torch.split(tensor, rows), strict=True)
    ]
    return sorted(parts, key=lambda part: part[0])


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    shapes = list(dict.fromkeys(tuple(part.shape[1:]) for part in parts))
    if len(shapes) > 1:
        raise ContractError(
            f"the rows of {name!r} have the shape {shapes[0]} in one batch and {shapes[1]} in another, and a "
            "summary of the whole set needs one",
            fix="pad them to one length, in collate or evaluate(); or measure each batch separately",
        )
    return torch.cat(parts)
