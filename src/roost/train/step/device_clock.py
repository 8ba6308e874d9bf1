"""Measures with events how long an accelerator works on each part of a step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from roost.train.accelerators.accelerator import DeviceEvent

_MAX_STEPS = 64
_MAX_EVENTS = 2048
"""With more events than this no further step is measured; it bounds the memory if steps have many batches."""
_BETWEEN_STEPS = -1


class DeviceClock:
    """Records events between the parts of a step in the stream in which they run.

    Host times would measure how long it takes to launch the work. Nothing waits for the device before `read`.
    The first 64 steps since the last `read` are measured, so that memory and the cost of reading stay
    bounded; an event costs the host some 5 µs, reading it 1 µs.

    Args:
        event: Creates an event with timing; events are reused.
        stream: Returns the current stream of the work.
    """

    def __init__(self, event: Callable[[], DeviceEvent], stream: Callable[[], Any]) -> None:
        self._event, self._stream = event, stream
        self._free: list[DeviceEvent] = []
        self._marks: list[tuple[int, DeviceEvent]] = []
        """Events with the part that ended there, in the order of the stream."""
        self._steps = 0
        self._measures = False

    def begin(self) -> None:
        """Begins a step, before its first batch is fetched: earlier work belongs to no part."""
        self._measures = self._steps < _MAX_STEPS and len(self._marks) < _MAX_EVENTS
        if self._measures:
            self._steps += 1
            self.record(_BETWEEN_STEPS)

    def record(self, part: int) -> None:
        """Ends a part: all work enqueued since the previous record belongs to it, and so does idle time."""
        if self._measures:
            event = self._free.pop() if self._free else self._event()
            event.record(self._stream())
            self._marks.append((part, event))

    def read(self, num_parts: int) -> tuple[int, list[float]]:
        """Returns how many steps were measured since the last call, and the seconds of each part in all of
        them.

        Waits for the last event, which has already completed if a row was read just before.
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
