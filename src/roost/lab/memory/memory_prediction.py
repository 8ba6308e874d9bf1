"""Predicts how much card memory a task needs from the peaks of earlier runs: pure functions over `MemoryPeak`
rows.

In this order: similar runs (`roost.lab.memory.run_comparison`) of the same scale; a line through similar runs
of other scales; the memory that the task itself requests; a whole card. The scale is the batch size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.run_comparison import SimilarRuns
from roost.lab.queue.history import MemoryPeak

NEWEST_RUNS = 8
"""Only so many of the newest runs count: code outside the digest, such as the driver, changes."""
ENOUGH_RUNS = 3
MARGIN = 1.05
_MARGIN_PER_MISSING_RUN = 0.05
"""Added to the margin for each run that is missing to `ENOUGH_RUNS`: the largest of one or two runs says
less."""
_LINE_MARGIN = 1.10
_MAX_RATIO = 1.25
"""Peaks of one profile and scale that differ by a larger factor are not used; nor is a line that misses one
by it."""
_MAX_EXTRAPOLATION = 2.0
"""A line is used up to so many times its largest scale."""
MAX_OUT_OF_MEMORY_RETRIES = 3
_RESERVATION_FACTOR, _PEAK_FACTOR, _REQUESTED_FACTOR = 1.5, 1.2, 1.1
"""The next reservation is at least so much of the last one, of the peak, and of the peak with the allocation
that failed: it needed at least that."""

UNKNOWN_MEMORY = "its memory use is not known yet: it is measured on a whole card"
"""The reason of a reservation of whole cards."""


@dataclass(frozen=True, slots=True)
class MemoryReservation:
    """The memory that a task gets of each of its cards."""

    mb: int | None
    """None: whole cards."""
    reason: str


def predict_memory(
    similar: SimilarRuns, *, scale: float | None, declared_mb: int | None = None
) -> MemoryReservation:
    """Returns the memory for a task.

    Args:
        similar: The runs that are similar to it, on one model of card with as many ranks.
        scale: The scale of the task.
        declared_mb: The memory that the task itself requests; None: it requests none.
    """
    by_scale: defaultdict[float | None, list[MemoryPeak]] = defaultdict(list)
    for peak in similar.peaks:
        by_scale[peak.scale].append(peak)
    found = _from_same_scale(by_scale.get(scale, []), similar)
    if found is None and scale is not None:
        lines = {one: rows for one, rows in by_scale.items() if one is not None and one != scale}
        found = _from_other_scales(lines, scale, similar)
    if found is not None:
        return found
    if declared_mb is not None:
        return MemoryReservation(declared_mb, "as requested")
    return MemoryReservation(None, UNKNOWN_MEMORY)


def _from_same_scale(rows: Sequence[MemoryPeak], similar: SimilarRuns) -> MemoryReservation | None:
    newest = rows[-NEWEST_RUNS:]
    peaks = sorted(row.peak_mb for row in newest)
    if not peaks or peaks[-1] > _MAX_RATIO * peaks[0]:
        return None
    margin = MARGIN + _MARGIN_PER_MISSING_RUN * max(0, ENOUGH_RUNS - len(peaks))
    mb = percentile(peaks, 0.95) * margin * similar.widening + max(row.overhead_mb for row in newest)
    runs = "an earlier run" if len(peaks) == 1 else f"{len(peaks)} earlier runs"
    return MemoryReservation(_rounded_up(mb), _learned_from(runs, similar))


def _learned_from(runs: str, similar: SimilarRuns) -> str:
    return f"learned from {runs}" + (f" {similar.difference}" if similar.difference else "")


def _from_other_scales(
    by_scale: Mapping[float, Sequence[MemoryPeak]], scale: float, similar: SimilarRuns
) -> MemoryReservation | None:
    """Returns the prediction of a least-squares line through the largest peak of each scale."""
    points = [
        (one, max(row.peak_mb for row in rows[-NEWEST_RUNS:])) for one, rows in sorted(by_scale.items())
    ]
    if len(points) < 2 or scale > _MAX_EXTRAPOLATION * points[-1][0]:
        return None
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    if slope < 0 or any(y > _MAX_RATIO * (mean_y + slope * (x - mean_x)) for x, y in points):
        return None
    # Below the smallest scale a part does not shrink with it: at least half of the smallest peak is kept.
    peak = max(mean_y + slope * (scale - mean_x), points[0][1] / 2)
    overhead = max(row.overhead_mb for rows in by_scale.values() for row in rows)
    runs = f"runs of {len(points)} other batch sizes, from {points[0][0]:g} to {points[-1][0]:g}"
    mb = peak * _LINE_MARGIN * similar.widening + overhead
    return MemoryReservation(_rounded_up(mb), _learned_from(runs, similar))


def _rounded_up(mb: float) -> int:
    return math.ceil(round(mb, 3))


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the percentile (nearest rank) of sorted values, at least one."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


# --- out of memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The facts about an attempt that ran out of card memory."""

    reserved_mb: int | None
    """Its reservation on the card; None: the whole card."""
    card_mb: int
    """Memory that tasks may have of such a card."""
    largest_mb: int
    """Memory that tasks may have of the largest card."""
    peak_mb: float
    """The memory that it used, the driver's part included."""
    asked_mb: float = 0.0
    """The size of the allocation that failed, where it is known."""
    alone: bool = True
    """Whether no other process used the card."""

    @property
    def promised_mb(self) -> int:
        """The memory that it could rely on."""
        return self.card_mb if self.reserved_mb is None else self.reserved_mb

    @property
    def own_fault(self) -> bool:
        """Whether it needed more than was promised; otherwise another process had taken that."""
        return self.alone or self.peak_mb + self.asked_mb > self.promised_mb


def request_after_out_of_memory(failed: OutOfMemory, need: ResourceRequest) -> ResourceRequest | None:
    """Returns the resource request for an attempt after one that ran out of memory: more of each card, then
    a whole card, then a larger card.

    Args:
        failed: The attempt that ran out of memory.
        need: Its resource request.

    Returns:
        None if no larger card exists, or after `MAX_OUT_OF_MEMORY_RETRIES` failures before: the task needs a
        smaller batch, or more ranks.
    """
    if not failed.own_fault:
        return _with_least(need, failed.reserved_mb)
    count = need.ran_out + 1
    if count > MAX_OUT_OF_MEMORY_RETRIES:
        return None
    needed_mb = failed.peak_mb + failed.asked_mb
    if failed.reserved_mb is None or (failed.card_mb < needed_mb and failed.card_mb < failed.largest_mb):
        if failed.largest_mb <= failed.card_mb:
            return None
        larger_mb = min(max(failed.card_mb + 1, _rounded_up(needed_mb)), failed.largest_mb)
        return _with_least(need, larger_mb, whole=True, ran_out=count)
    more = _rounded_up(
        max(
            failed.reserved_mb * _RESERVATION_FACTOR,
            failed.peak_mb * _PEAK_FACTOR,
            needed_mb * _REQUESTED_FACTOR if failed.asked_mb else 0.0,
        )
    )
    if count == 1 and more < failed.card_mb:
        return _with_least(need, more, ran_out=count)
    return _with_least(need, failed.reserved_mb, whole=True, ran_out=count)


def _with_least(need: ResourceRequest, mb: int | None, **changes: Any) -> ResourceRequest:
    """Returns the request with at least ``mb`` of each card; None: no more than before."""
    least_mb = max(filter(None, (mb, need.least_mb)), default=None)
    return msgspec.structs.replace(need, least_mb=least_mb, **changes)
