"""The estimate of time and disk of a run, from the measurements of a check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from roost.base.interval import Interval, parse_duration
from roost.config.settings import Settings


class RunEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Time and disk of a whole run."""

    steps_per_epoch: int
    total_steps: int | None
    """None: only a time limit ends the run."""
    seconds_per_step: float
    seconds_per_epoch: float
    """Includes validations and saves."""
    total_seconds: float
    """Time of the whole run, without saves that hooks request; at most ``max_time``."""
    checkpoint_bytes: int
    checkpoints: int
    """The most that are on the disk at the same time, including the one that is being written."""
    disk_bytes: int
    """The size of these checkpoints together."""
    free_bytes: int
    """Free space on the disk of ``save_root``."""

    @property
    def fits(self) -> bool:
        """Whether the disk has enough free space for the checkpoints."""
        return self.disk_bytes <= self.free_bytes


def estimate_run(settings: Settings, measured: Mapping[str, Any], *, free_bytes: int) -> RunEstimate:
    """Returns the estimate.

    Args:
        settings: Of the run.
        measured: The measurements of the check's worker.
        free_bytes: As in `RunEstimate`.
    """
    per_epoch, total = int(measured["steps_per_epoch"]), measured["total_steps"]
    step_seconds = float(measured["step_seconds"])
    every = settings.checkpoint.every
    validations = _times_per_epoch([settings.validate_every], per_epoch, step_seconds)
    saves = _times_per_epoch(every if isinstance(every, list) else [every], per_epoch, step_seconds)
    # Each validation may find a new best value, which is saved.
    most_saves = max(saves, validations) if settings.checkpoint.best else saves
    epoch_seconds = (
        per_epoch * step_seconds
        + validations * float(measured["validate_seconds"])
        + most_saves * float(measured.get("save_seconds", 0.0))
    )
    limit = parse_duration(settings.max_time, setting="max_time") if settings.max_time else None
    epochs = total / per_epoch if total is not None else (limit or 0.0) / epoch_seconds
    whole = (
        epochs * per_epoch * step_seconds
        # In its last step a run validates and saves regardless of the intervals.
        + math.ceil(epochs * validations) * float(measured["validate_seconds"])
        + math.ceil(epochs * most_saves) * float(measured.get("save_seconds", 0.0))
    )
    seconds = min(whole, limit or float("inf")) + float(measured["test_seconds"])
    size = int(measured.get("checkpoint_bytes", 0))
    kept = _max_checkpoints(settings, int(epochs * (saves + validations)) + 1)
    return RunEstimate(
        steps_per_epoch=per_epoch,
        total_steps=total,
        seconds_per_step=step_seconds,
        seconds_per_epoch=epoch_seconds,
        total_seconds=seconds,
        checkpoint_bytes=size,
        checkpoints=kept if size else 0,
        disk_bytes=size * kept,
        free_bytes=free_bytes,
    )


def _times_per_epoch(every: list[str | int], steps_per_epoch: int, step_seconds: float) -> float:
    """Returns how often an action with these intervals is due in an epoch."""
    intervals = [Interval.parse(one, setting="every") for one in every]
    return sum(_interval_per_epoch(interval, steps_per_epoch, step_seconds) for interval in intervals)


def _interval_per_epoch(interval: Interval, steps_per_epoch: int, step_seconds: float) -> float:
    if interval.steps:
        return steps_per_epoch / interval.steps
    if interval.epochs:
        return 1 / interval.epochs
    if interval.per_epoch:
        return min(interval.per_epoch, steps_per_epoch)
    return steps_per_epoch * step_seconds / interval.seconds if interval.seconds else 0.0


def _max_checkpoints(settings: Settings, saves: int) -> int:
    """Returns the most checkpoints at the same time: what the tracks keep, at least the newest two, and one
    that is being written, because an old one is removed only after it is committed."""
    given = settings.checkpoint
    tracks = max(2, given.fast) + given.slow + given.held + sum(one.top_k for one in given.best)
    return min(saves, tracks + 1)
