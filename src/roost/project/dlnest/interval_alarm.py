"""The next time at which an interval is due, in a loop whose epochs may skip batches."""

from __future__ import annotations

import math

from roost.base.interval import NEVER, Interval
from roost.train.progress import Progress


class IntervalAlarm:
    """Says when an interval is due next: at a step, at a batch of the epoch, or at a time of the clock.

    Args:
        interval: As of `Interval.parse`.
        setting: Its setting, for messages.
    """

    def __init__(self, interval: str | int, *, setting: str) -> None:
        self._interval = Interval.parse(interval, setting=setting)
        self.step = self.batch = NEVER
        self.second = math.inf

    @property
    def is_by_clock(self) -> bool:
        """Whether the interval is a time."""
        return bool(self._interval.seconds)

    def schedule(self, progress: Progress, num_batches: int, now: float) -> None:
        """Schedules the next time after this position, unless it is still to come."""
        interval = self._interval
        if interval.steps:
            self.step = interval.next_step(progress.step, 1)
        elif interval.seconds:
            self.second = now + interval.seconds if not now < self.second < math.inf else self.second
        elif num_batches:  # not in steps: a batch may be skipped
            before = progress.epoch * num_batches
            self.batch = interval.next_step(before + progress.batch, num_batches) - before

    def is_due(self, progress: Progress, now: float) -> bool:
        """Whether it is due."""
        return progress.step >= self.step or progress.batch >= self.batch or now >= self.second
