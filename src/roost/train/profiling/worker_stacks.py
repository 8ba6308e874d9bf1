"""`WorkerStacks`: the stacks of a loader worker, which samples itself, seen by the process that trains."""

from __future__ import annotations

import json
import math
import struct
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from roost.train.data.workers.shared_memory import SharedMemoryFull, Slot
from roost.train.profiling.stack_sampler import Frame, Sample, StackSampler

_LENGTH = struct.Struct("q")
_LOOKS_PER_WRITE = 25


class WorkerSamples(NamedTuple):
    """The measurements of a loader worker of itself since it began."""

    stacks: Counter[Sample]
    seconds: float = 0.0
    idle: float = 0.0
    """Seconds in which it waited for a task."""
    computing: float | None = 0.0
    """Seconds on a core or ready for one; None: unknown."""

    def since(self, before: WorkerSamples) -> WorkerSamples:
        """Returns what came after ``before``."""
        unknown = self.computing is None or before.computing is None
        return WorkerSamples(
            self.stacks - before.stacks,
            self.seconds - before.seconds,
            self.idle - before.idle,
            None if unknown else self.computing - before.computing,  # type: ignore[operator]
        )


class WorkerStacks:
    """Made before the workers start; the worker calls `begin`, the process that trains `read`. They share
    memory, into which the worker writes its counts four times a second.

    Args:
        project: See `StackSampler`.
    """

    def __init__(self, project: Path | None) -> None:
        self._project, self._slot = project, Slot()
        self._looks, self._idle, self._idle_since = 0, 0.0, math.nan
        self._sampler: StackSampler | None = None

    def begin(self, read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
        """Begins to sample the calling thread of a worker, until the process ends.

        Returns:
            ``read``, the function that waits for the next task, with its time counted as idle.
        """

        def timed(fd: int, size: int) -> bytes:
            self._idle_since = started = perf_counter()
            message = read(fd, size)
            self._idle_since, self._idle = math.nan, self._idle + perf_counter() - started
            return message

        self._began, self._thread = perf_counter(), threading.get_native_id()
        self._sampler = StackSampler(self._project, after_each=self._after_look)
        self._sampler.start()
        return timed

    def _after_look(self) -> None:
        self._looks += 1
        if self._looks % _LOOKS_PER_WRITE or self._sampler is None:
            return
        now = perf_counter()
        idle = self._idle + (0.0 if math.isnan(self._idle_since) else now - self._idle_since)
        computing = computing_seconds(self._thread)
        body = encode(WorkerSamples(self._sampler.samples, now - self._began, idle, computing))
        try:
            memory = self._slot.memory(_LENGTH.size + len(body))
        except SharedMemoryFull:  # the counts before it remain
            return
        # A reader that looks meanwhile finds nothing.
        _LENGTH.pack_into(memory, 0, 0)
        memory[_LENGTH.size : _LENGTH.size + len(body)] = body
        _LENGTH.pack_into(memory, 0, len(body))

    def read(self) -> WorkerSamples:
        """Returns what the worker has measured since it began; nothing before it has begun."""
        (length,) = _LENGTH.unpack_from(self._slot.memory(_LENGTH.size), 0)
        if not length:
            return WorkerSamples(Counter())
        memory = self._slot.memory(_LENGTH.size + length)
        try:
            return decode(bytes(memory[_LENGTH.size : _LENGTH.size + length]))
        except ValueError:  # the worker was writing
            return WorkerSamples(Counter())

    def close(self) -> None:
        """Frees the memory in this process."""
        self._slot.close()


def computing_seconds(thread: int) -> float | None:
    """Returns the seconds that a thread of this process was on a core or ready for one; None if the system
    does not count them."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            on_core, ready = file.read().split()[:2]
    except (OSError, ValueError):
        return None
    return (int(on_core) + int(ready)) / 1e9


def encode(samples: WorkerSamples) -> bytes:
    """Returns measurements as JSON, each frame once."""
    frames: dict[Frame, int] = {}
    stacks: list[Any] = [
        [number, int(one.is_computing), [frames.setdefault(frame, len(frames)) for frame in one.stack]]
        for one, number in samples.stacks.items()
    ]
    body = {"frames": list(frames), "stacks": stacks, "times": samples[1:]}
    return json.dumps(body, separators=(",", ":")).encode()


def decode(body: bytes) -> WorkerSamples:
    """Returns the measurements of `encode`.

    Raises:
        ValueError: It is not such a text.
    """
    found = json.loads(body)
    frames = [(str(name), str(file), int(line)) for name, file, line in found["frames"]]
    stacks = {
        Sample(tuple(frames[at] for at in stack), bool(is_computing)): number
        for number, is_computing, stack in found["stacks"]
    }
    return WorkerSamples(Counter(stacks), *found["times"])
