"""Bounded histories of values, for spark-lines."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

MAX_POINTS = 128
"""Of a metric: more than a spark-line has characters."""
MAX_SAMPLES = 120
"""Of a card: two minutes."""


class MetricHistory:
    """The values of one metric over the whole time of its run, in at most `MAX_POINTS` points: when there are
    more, every second one is left out, never the newest."""

    __slots__ = ("_skip", "_stride", "steps", "values")

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self._stride = 1
        """A point is stored for each so many that arrive."""
        self._skip = 0
        """How many points have arrived since the last one that stays."""

    @property
    def newest(self) -> float | None:
        """The newest value; None without values."""
        return self.values[-1] if self.values else None

    def points(self) -> list[tuple[int, float | None]]:
        """Returns the points; None for a value that is not a finite number."""
        pairs = zip(self.steps, self.values, strict=True)
        return [(step, value if math.isfinite(value) else None) for step, value in pairs]

    def add(self, points: Iterable[tuple[int, float]]) -> None:
        """Adds points, the oldest first. One of the newest step replaces its value, an older one is
        ignored."""
        if not self.steps:  # as of a snapshot, whose points are many and in order
            found = list(points)
            if len(found) <= MAX_POINTS and all(one[0] < other[0] for one, other in pairwise(found)):
                self.steps, self.values = [step for step, _ in found], [value for _, value in found]
                return
            points = found
        for step, value in points:
            if self.steps and step <= self.steps[-1]:
                if step == self.steps[-1]:
                    self.values[-1] = value
                continue
            self._append(step, value)

    def _append(self, step: int, value: float) -> None:
        if self._skip and self.steps:  # the newest point was to be left out, and is no longer the newest
            self.steps[-1], self.values[-1] = step, value
        else:
            self.steps.append(step)
            self.values.append(value)
        self._skip = (self._skip + 1) % self._stride
        if len(self.steps) > MAX_POINTS:
            # From the end, so that the newest point stays.
            self.steps, self.values = self.steps[::-2][::-1], self.values[::-2][::-1]
            self._stride *= 2

    def void_after(self, step: int) -> None:
        """Removes the points after a step."""
        end = bisect_right(self.steps, step)
        if end < len(self.steps):
            del self.steps[end:], self.values[end:]
            self._skip = 0


class SampleHistory:
    """The samples of one value over the last two minutes; None where it was not measured."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=MAX_SAMPLES)
        self.values: deque[float | None] = deque(maxlen=MAX_SAMPLES)

    def add(self, at: float, value: float | None) -> None:
        """Adds a sample; one that is not newer than the last is ignored."""
        if not self.times or at > self.times[-1]:
            self.times.append(at)
            self.values.append(value)
