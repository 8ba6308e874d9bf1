"""Sees that a run hangs (no step, no output for a while), and writes down where it is."""

# Standard library only

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from roost.supervisor.monitoring.process_stacks import ProcessSample

_PROGRESS_BYTES = 4096


class StallWatch:
    """Measures how long a run made no progress.

    Only time in which the watch itself was awake counts, a tick at a time: not that of a suspended machine,
    nor that in which the supervisor was paused together with the run.

    Args:
        board: The file in which the worker publishes each step; may be empty or not be there.
        output_fds: What it prints.
        stall_seconds: From when on it has stalled.
        now: Monotonic seconds, as those of `look`.
    """

    def __init__(self, board: str, output_fds: Sequence[int], stall_seconds: float, *, now: float) -> None:
        self._board, self._output_fds, self._stall_seconds = board, output_fds, stall_seconds
        self._most_of_tick = min(5.0, stall_seconds / 2)
        self._seen = self._progress()
        self._last = now
        self._told = False
        self.idle_seconds = 0.0

    @property
    def tick_seconds(self) -> float:
        """How often `look` must be called."""
        return min(1.0, self._stall_seconds / 4)

    def look(self, now: float) -> bool:
        """Whether it has stalled; true once, until there was progress again."""
        seen = self._progress()
        if seen != self._seen:
            self._seen, self.idle_seconds, self._told = seen, 0.0, False
        else:
            self.idle_seconds += min(now - self._last, self._most_of_tick)
        self._last = now
        if self._told or self.idle_seconds < self._stall_seconds:
            return False
        self._told = True
        return True

    def pass_over_output(self) -> None:
        """What was printed until now was ours, and is no progress of the run."""
        self._seen = (self._seen[0], self._printed())

    def _progress(self) -> tuple[bytes, int]:
        return _read(self._board), self._printed()

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
    """One stall, as the record tells it."""

    time: float
    idle_seconds: float
    step: int | None
    phase: str | None
    processes: int
    stopped: bool
    """Whether the worker was paused by a signal, as a debugger or `kill -STOP` does."""
    stacks: str
    """The file they were appended to; empty if they could not be."""


def describe_stall(
    looks: list[ProcessSample], *, workers: Collection[int], board: str, idle_seconds: float, stacks: str
) -> Stall:
    """What is known of a stall."""
    step, phase = _current_step(board)
    stopped = any(look.pid in workers and look.state in "Tt" for look in looks)
    return Stall(time.time(), round(idle_seconds, 1), step, phase, len(looks), stopped, stacks)


def _current_step(board: str) -> tuple[int | None, str | None]:
    from roost.package import live_progress

    seen = live_progress.read(Path(board)) if board else None
    return (seen.step, seen.phase) if seen is not None else (None, None)


def append_stacks(stall: Stall, looks: list[ProcessSample]) -> None:
    """Adds the stacks to their file. Raises OSError."""
    from roost.base import durable

    fd = durable.open_append(Path(stall.stacks))
    try:
        durable.append(fd, _format_stacks(stall, looks))
        durable.sync(fd)
    finally:
        os.close(fd)


def _format_stacks(stall: Stall, looks: list[ProcessSample]) -> bytes:
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(stall.time))
    place = f", step {stall.step}, {stall.phase}" if stall.step is not None else ""
    lines = [f"=== {when}{place}: no step and no output for {stall.idle_seconds:g} s\n".encode()]
    lines += [look.text() for look in looks]
    return b"".join(lines) + b"\n"


def format_stall(stall: Stall) -> str:
    """One stall in words, for the output and for the error."""
    idle = f"no step and no output for {stall.idle_seconds:g} s"
    paused = "; its worker is paused by a signal (kill -CONT would let it go on)" if stall.stopped else ""
    where = f"; the stacks of its processes are in {stall.stacks}"
    return idle + paused + (where if stall.stacks else "")


def stall_as_json(stall: Stall) -> dict[str, Any]:
    """For the record; the file by its name, since packages are moved."""
    return stall._asdict() | {"stacks": Path(stall.stacks).name}
