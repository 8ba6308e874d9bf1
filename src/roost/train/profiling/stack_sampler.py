"""`StackSampler`: looks at the stack of a thread many times a second (Python's own frames, no signals)."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

INTERVAL_SECONDS = 0.01
_GOLDEN = 0.6180339887
_MAX_DEPTH = 80
_MAX_STACKS = 4000
"""Further stacks are counted as one, so that the memory is bounded."""
_MANY = (("(other stacks)", "", 0),)
_COMPUTING = b"R"

Frame = tuple[str, str, int]
"""A function's name, its file, and the line that it executes if it is the innermost frame of the project's
own code; otherwise 0."""
Stack = tuple[Frame, ...]
"""The frames of a thread, the outermost first."""


class Sample(NamedTuple):
    """A stack, and whether the thread had a CPU core at that moment; otherwise it waited."""

    stack: Stack
    is_computing: bool


class StackSampler:
    """A thread that looks at the stack of another thread of this process every 10 ms, at uneven distances, so
    that it does not beat with the steps. A look takes some 50 µs, and draws no random number.

    A thread computes if the kernel says that it runs or could run (``/proc``; elsewhere it always computes):
    one that reads from a disk, from a network or sleeps waits.

    Args:
        project: The folder of the user's own code: of its frames the executed line is recorded.
        interval_seconds: The mean time between two looks.
        after_each: Called in the sampling thread after each look.
    """

    def __init__(
        self,
        project: Path | str | None = None,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        after_each: Callable[[], None] = lambda: None,
    ) -> None:
        self.samples: Counter[Sample] = Counter()
        self._project = "" if project is None else str(project).rstrip("/") + "/"
        self._interval, self._after_each = interval_seconds, after_each
        # Of the thread that makes this object.
        self._ident, self._state = threading.get_ident(), f"/proc/self/task/{threading.get_native_id()}/stat"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roost-stack-sampler", daemon=True)

    def start(self) -> None:
        """Begins to look at the thread that made this object."""
        self._thread.start()

    def stop(self) -> Counter[Sample]:
        """Ends the thread, and returns how often each stack was seen."""
        self._ended.set()
        self._thread.join()
        return self.samples

    def _run(self) -> None:
        phase = 0.0
        while not self._ended.wait(self._interval * (0.5 + phase)):
            phase = (phase + _GOLDEN) % 1.0
            is_computing = (
                self._is_computing()
            )  # first: this thread waits for the interpreter's lock after it
            frame = sys._current_frames().get(self._ident)
            if frame is None:
                return
            self._count(Sample(self._stack(frame), is_computing))
            del frame  # it would keep the values of the watched thread alive
            self._after_each()

    def _count(self, sample: Sample) -> None:
        if sample not in self.samples and len(self.samples) >= _MAX_STACKS:
            sample = Sample(_MANY, sample.is_computing)
        self.samples[sample] += 1

    def _stack(self, frame: FrameType | None) -> Stack:
        found: list[Frame] = []
        is_line_known = not self._project
        while frame is not None:
            code: CodeType = frame.f_code
            line = 0
            if not is_line_known and code.co_filename.startswith(self._project):
                line, is_line_known = frame.f_lineno or 0, True
            found.append((code.co_name, code.co_filename, line))
            frame = frame.f_back
        found.reverse()
        return tuple(found[-_MAX_DEPTH:])

    def _is_computing(self) -> bool:
        try:
            with open(self._state, "rb") as file:
                return file.read().rpartition(b") ")[2][:1] == _COMPUTING
        except OSError:
            return True
