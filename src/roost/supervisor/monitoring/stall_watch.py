"""Detects that a run stalls (no step and no output for a set time), and describes the stall."""

# Standard library only

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from roost.supervisor.monitoring.process_stacks import ProcessSample

_PROGRESS_BYTES = 2**16
"""Of the records of 256 ranks, any of which may make progress."""


class StallWatch:
    """Measures how long a run made no progress.

    Only time in which the watch itself ran counts, one tick at a time: not that of a suspended machine, nor
    that in which the supervisor was paused together with the run.

    Args:
        progress_file: The file in which the worker publishes each step; may be empty or missing.
        output_fds: The outputs of the workers.
        stall_seconds: After how long without progress the run has stalled.
        now: Monotonic seconds, as those of `check`.
    """

    def __init__(
        self, progress_file: str, output_fds: Sequence[int], stall_seconds: float, *, now: float
    ) -> None:
        self._progress_file, self._output_fds, self._stall_seconds = progress_file, output_fds, stall_seconds
        self._max_tick_seconds = min(5.0, stall_seconds / 2)
        self._last_progress = self._progress()
        self._last = now
        self._is_reported = False
        self.idle_seconds = 0.0

    @property
    def tick_seconds(self) -> float:
        """How often `check` must be called."""
        return min(1.0, self._stall_seconds / 4)

    def check(self, now: float) -> bool:
        """Whether the run has stalled; true once, until there was progress again."""
        seen = self._progress()
        if seen != self._last_progress:
            self._last_progress, self.idle_seconds, self._is_reported = seen, 0.0, False
        else:
            self.idle_seconds += min(now - self._last, self._max_tick_seconds)
        self._last = now
        if self._is_reported or self.idle_seconds < self._stall_seconds:
            return False
        self._is_reported = True
        return True

    def skip_own_output(self) -> None:
        """Takes the current size of the outputs as seen: roost's own lines are no progress of the run."""
        self._last_progress = (self._last_progress[0], self._printed())

    def _progress(self) -> tuple[bytes, int]:
        return _read(self._progress_file), self._printed()

    def _printed(self) -> int:
        return sum(os.fstat(fd).st_size for fd in self._output_fds)


def _read(path: str) -> bytes:
    if not path:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, _PROGRESS_BYTES)
    except OSError:  # a folder
        return b""
    finally:
        os.close(fd)


class Stall(NamedTuple):
    """One stall. The names of the fields are those in the session record."""

    time: float
    idle_seconds: float
    step: int | None
    phase: str | None
    processes: int
    stopped: bool
    """Whether the worker was paused by a signal, as a debugger or `kill -STOP` does."""
    stacks: str
    """The file to which the stacks were appended; empty if that failed."""


def describe_stall(
    samples: list[ProcessSample],
    *,
    workers: Collection[int],
    progress_file: str,
    idle_seconds: float,
    stacks: str,
) -> Stall:
    """Returns the facts of a stall."""
    step, phase = _current_step(progress_file)
    stopped = any(sample.pid in workers and sample.state in "Tt" for sample in samples)
    return Stall(time.time(), round(idle_seconds, 1), step, phase, len(samples), stopped, stacks)


def _current_step(progress_file: str) -> tuple[int | None, str | None]:
    from roost.package import live_progress

    seen = live_progress.read(Path(progress_file)) if progress_file else None
    return (seen.step, seen.phase) if seen is not None else (None, None)


def append_stacks(stall: Stall, samples: list[ProcessSample]) -> None:
    """Appends the stacks to their file. Raises OSError."""
    from roost.base import durable

    fd = durable.open_append(Path(stall.stacks))
    try:
        durable.append(fd, _format_stacks(stall, samples))
        durable.sync(fd)
    finally:
        os.close(fd)


def _format_stacks(stall: Stall, samples: list[ProcessSample]) -> bytes:
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(stall.time))
    place = f", step {stall.step}, {stall.phase}" if stall.step is not None else ""
    lines = [f"=== {when}{place}: no step and no output for {stall.idle_seconds:g} s\n".encode()]
    lines += [sample.format() for sample in samples]
    return b"".join(lines) + b"\n"


def format_stall(stall: Stall) -> str:
    """Returns one line about the stall, for the output and for the error."""
    idle = f"no step and no output for {stall.idle_seconds:g} s"
    paused = "; its worker is paused by a signal (kill -CONT continues it)" if stall.stopped else ""
    where = f"; the stacks of its processes are in {stall.stacks}"
    return idle + paused + (where if stall.stacks else "")


def stall_as_json(stall: Stall) -> dict[str, Any]:
    """Returns the stall for the record; the file by its name, since packages are moved."""
    return stall._asdict() | {"stacks": Path(stall.stacks).name}
