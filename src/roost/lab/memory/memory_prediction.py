"""How much memory a task is given, by what earlier runs have taken: pure functions over `Peak` rows.

The ladder: runs of the same profile and scale; a line through runs of other scales; what the task itself
says; the whole card. A profile is the code and the config without what does not change memory, and without
the size of the batch, which is the scale.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.lab.queue.history import Peak

NEWEST_RUNS = 8
"""So many of the newest runs count: code that a digest does not see, such as a driver, changes."""
ENOUGH_RUNS = 3
MARGIN = 1.05
_MARGIN_PER_MISSING_RUN = 0.05
"""Added for each run that is missing to `ENOUGH_RUNS`: the largest of one or two says less."""
_LINE_MARGIN = 1.10
_MAX_RATIO = 1.25
"""Runs of one profile and scale that differ by more say nothing; nor does a line that misses by so much."""
_MAX_EXTRAPOLATION = 2.0
"""A line is believed up to so many times its largest scale."""
MAX_RETRIES = 3
_RESERVATION_FACTOR, _PEAK_FACTOR = 1.5, 1.2

_BATCH_SETTINGS = ("batch_size", "max_tokens")
_IRRELEVANT_SETTINGS = frozenset([
    "checkpoint", "description", "devices", "early_stopping", "limits", "log_every", "max_epochs",
    "max_steps", "max_time", "mirrors", "rank_timeout", "save_root", "seed", "test_at_end", "validate_every",
])  # fmt: skip
"""Top-level settings that do not change how much memory a step takes; the number of ranks is kept apart."""
_IRRELEVANT_OPTIMIZER_SETTINGS = frozenset(["lr", "weight_decay", "scheduler", "max_grad_norm", "betas", "eps"])


@dataclass(frozen=True, slots=True)
class MemoryReservation:
    """What a task is given of each of its cards."""

    mb: int | None
    """None: whole cards."""
    why: str


def memory_profile(code: str, settings: Mapping[str, Any]) -> tuple[str, float | None]:
    """Under which runs are taken for the same, and the scale that their memory grows by.

    Args:
        code: Digest of the code that is run.
        settings: The effective ones, all layers merged.
    """
    kept = {key: value for key, value in settings.items() if key not in _IRRELEVANT_SETTINGS}
    data = kept.get("data")
    scale = None
    if isinstance(data, Mapping):
        named = next((key for key in _BATCH_SETTINGS if _is_number(data.get(key))), None)
        scale = float(data[named]) if named is not None else None
        kept["data"] = {key: named if key == named else value for key, value in data.items()}
    optimizers = kept.get("optimizers")
    if isinstance(optimizers, Mapping):
        kept["optimizers"] = {name: _without_rates(one) for name, one in optimizers.items()}
    text = json.dumps([code, kept], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32], scale


def _without_rates(optimizer: Any) -> Any:
    if not isinstance(optimizer, Mapping):
        return optimizer
    return {key: value for key, value in optimizer.items() if key not in _IRRELEVANT_OPTIMIZER_SETTINGS}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def predict_memory(
    peaks: Iterable[Peak], *, scale: float | None, device: str, ranks: int, declared_mb: int | None
) -> MemoryReservation:
    """What a task is given.

    Args:
        peaks: Of its profile, the oldest first.
        scale: Of the task.
        device: The model of the card.
        ranks: Among how many cards it is shared out.
        declared_mb: What the task itself says; None: nothing.
    """
    by_scale: defaultdict[float | None, list[Peak]] = defaultdict(list)
    for peak in peaks:
        if (peak.device, peak.ranks) == (device, ranks):
            by_scale[peak.scale].append(peak)
    found = _from_same_scale(by_scale.get(scale, []))
    if found is None and scale is not None:
        lines = {one: rows for one, rows in by_scale.items() if one is not None and one != scale}
        found = _from_other_scales(lines, scale)
    if found is not None:
        return found
    if declared_mb is not None:
        return MemoryReservation(declared_mb, "as asked")
    return MemoryReservation(None, "its memory is not known yet: it is measured on a whole card")


def _from_same_scale(rows: Sequence[Peak]) -> MemoryReservation | None:
    newest = rows[-NEWEST_RUNS:]
    peaks = sorted(row.peak_mb for row in newest)
    if not peaks or peaks[-1] > _MAX_RATIO * peaks[0]:
        return None
    margin = MARGIN + _MARGIN_PER_MISSING_RUN * max(0, ENOUGH_RUNS - len(peaks))
    mb = percentile(peaks, 0.95) * margin + max(row.overhead_mb for row in newest)
    runs = "an earlier run" if len(peaks) == 1 else f"{len(peaks)} earlier runs"
    return MemoryReservation(_rounded_up(mb), f"learned from {runs}")


def _from_other_scales(by_scale: Mapping[float, Sequence[Peak]], scale: float) -> MemoryReservation | None:
    """Least squares through the largest peak of each scale."""
    points = [(one, max(row.peak_mb for row in rows[-NEWEST_RUNS:])) for one, rows in sorted(by_scale.items())]
    if len(points) < 2 or scale > _MAX_EXTRAPOLATION * points[-1][0]:
        return None
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    if slope < 0 or any(y > _MAX_RATIO * (mean_y + slope * (x - mean_x)) for x, y in points):
        return None
    # Below the smallest scale something stays that does not shrink with it: no less than half of the least.
    peak = max(mean_y + slope * (scale - mean_x), points[0][1] / 2)
    overhead = max(row.overhead_mb for rows in by_scale.values() for row in rows)
    why = f"learned from runs of {len(points)} other scales, from {points[0][0]:g} to {points[-1][0]:g}"
    return MemoryReservation(_rounded_up(peak * _LINE_MARGIN + overhead), why)


def _rounded_up(mb: float) -> int:
    return math.ceil(round(mb, 3))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share is not above; of sorted values, at least one."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


# --- out of memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """How an attempt ran out of a card's memory."""

    reserved_mb: int | None
    """What it had of the card; None: the whole."""
    card_mb: int
    """What tasks may have of such a card."""
    largest_mb: int
    """What tasks may have of the largest card."""
    peak_mb: float
    """What it had taken, the driver's part included."""
    asked_mb: float = 0.0
    """What it asked for when that failed, where that is known."""
    alone: bool = True
    """Whether nobody else had anything of the card."""

    @property
    def promised_mb(self) -> int:
        """What it could count on."""
        return self.card_mb if self.reserved_mb is None else self.reserved_mb

    @property
    def own_fault(self) -> bool:
        """Whether it needed more than it was promised; otherwise a neighbour had taken that."""
        return self.alone or self.peak_mb + self.asked_mb > self.promised_mb


@dataclass(frozen=True, slots=True)
class RetryResources:
    """What the next attempt is given."""

    mb: int | None
    """At least, of each card; None: no more than before."""
    whole: bool
    count: int
    """How often it has run out of memory by its own fault."""


def resources_after_out_of_memory(failed: OutOfMemory, *, count: int) -> RetryResources | None:
    """What an attempt is given after one that ran out of memory: more, then a whole card, then a larger one.

    Args:
        failed: How it did.
        count: How often it had before, by its own fault.

    Returns:
        None where nothing larger is left, or it has failed `MAX_RETRIES` times before: the task needs a
        smaller batch, or more ranks.
    """
    if not failed.own_fault:
        return RetryResources(failed.reserved_mb, False, count)
    if count >= MAX_RETRIES:
        return None
    if failed.reserved_mb is None:
        return RetryResources(failed.card_mb + 1, True, count + 1) if failed.largest_mb > failed.card_mb else None
    more = _rounded_up(max(failed.reserved_mb * _RESERVATION_FACTOR, failed.peak_mb * _PEAK_FACTOR))
    if count == 0 and more < failed.card_mb:
        return RetryResources(more, False, 1)
    return RetryResources(failed.reserved_mb, True, count + 1)
