"""How long a GPU works on each part of a step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

_MAX_STEPS = 64
_MAX_EVENTS = 2048
"""A step that would begin beyond this is not measured; it bounds the memory where a step has many batches."""
_BETWEEN_STEPS = -1


class DeviceEvent(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self, stream: Any) -> None:
        """Takes place when the stream has done all it was given so far."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this one to ``end``."""

    def synchronize(self) -> None:
        """Waits until it has taken place."""


class DeviceClock:
    """Puts events between the parts of a step into the stream in which they run.

    Host stamps would measure how long it takes to launch the work. Nothing here waits for the device before
    `read`. The first 64 steps since the last `read` are measured, so that memory and the cost of reading stay
    bounded; an event costs the host some 5 µs, reading it 1 µs.

    Args:
        event: Makes an event that measures time; kept and used again.
        stream: Gives the stream in which the work runs now.
    """

    def __init__(self, event: Callable[[], DeviceEvent], stream: Callable[[], Any]) -> None:
        self._event, self._stream = event, stream
        self._free: list[DeviceEvent] = []
        self._marks: list[tuple[int, DeviceEvent]] = []
        """Each with the part that ended there, in the order of the stream."""
        self._steps = 0
        self._measures = False

    def begin(self) -> None:
        """A step begins, before its first batch is fetched: what came before belongs to no part."""
        self._measures = self._steps < _MAX_STEPS and len(self._marks) < _MAX_EVENTS
        if self._measures:
            self._steps += 1
            self.record(_BETWEEN_STEPS)

    def record(self, part: int) -> None:
        """A part ends: what the device was given since the record before belongs to it, its waiting too."""
        if self._measures:
            event = self._free.pop() if self._free else self._event()
            event.record(self._stream())
            self._marks.append((part, event))

    def read(self, num_parts: int) -> tuple[int, list[float]]:
        """How many steps were measured since the last time, and the seconds of each part in all of them.

        Waits for the last event, which has taken place already when a row was read back just before.
        """
        steps, marks = self._steps, self._marks
        self._steps, self._marks, self._measures = 0, [], False
        seconds = [0.0] * num_parts
        if marks:
            marks[-1][1].synchronize()
        for (_, begin), (part, end) in pairwise(marks):
            if part != _BETWEEN_STEPS:
                seconds[part] += begin.elapsed_time(end) / 1000
        self._free += [event for _, event in marks]
        return steps, seconds
