"""The progress record of a run: a memory-mapped file that the worker updates each step and any process may
read.

An update takes about a microsecond and no system call, so it happens every step: progress bar, stall
detection and attach all read the same bytes. The record survives the death of the worker.
"""

# Standard library only
# Not durable: one mapped record, updated each step for readers; nothing resumes from it

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from roost.base import safe_read

_BODY = struct.Struct("<QqqqqqddddQ")
_CHECKSUM = struct.Struct("<I")
_SLOT_BYTES = 128
_RECORD_BYTES = 2 * _SLOT_BYTES
_READ_TRIES = 1000
_MAX_COUNT = 2**59

PHASES = ("starting", "training", "validating", "testing", "saving", "ended", "visualizing")


@dataclass(frozen=True)
class ProgressRecord:
    """The progress of a run at one moment. ``total_steps`` and ``steps_per_epoch`` are 0 while unknown;
    ``wall`` is the Unix time of the update, ``seconds`` the training time over all sessions,
    ``samples_per_second`` a recent rate."""

    step: int
    epoch: int
    batch: int
    total_steps: int
    steps_per_epoch: int
    samples: int
    seconds: float
    samples_per_second: float
    fraction: float
    wall: float
    phase: str


class ProgressFile:
    """Writes progress records to ``path``, which is created if it does not exist.

    Readers show the first record. Ranks that do not work in lockstep have further ones, whose sum is shown,
    and by which the supervisor sees that one of them works on.

    Two slots are written in turn, each with a sequence number and a checksum; the valid one with the higher
    number counts. So a reader during a write, or after a writer was killed during one, gets the record
    before.
    """

    def __init__(self, path: Path, *, record: int = 0) -> None:
        self._at = record * _RECORD_BYTES
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Real blocks instead of a hole: on a full disk this raises an error, while storing into a mapped
            # hole would kill the process (SIGBUS).
            before = os.pread(fd, _RECORD_BYTES, self._at)
            os.pwrite(fd, bytes(_RECORD_BYTES - len(before)), self._at + len(before))
            found = _newest(before)
            self._map = mmap.mmap(fd, self._at + _RECORD_BYTES)
        finally:
            os.close(fd)
        self._sequence = found[0] if found is not None else 0

    def take_up(self) -> None:
        """Prepares to publish after another process, of several that write this record in turn."""
        found = _newest(self._map[self._at : self._at + _RECORD_BYTES])
        self._sequence = found[0] if found is not None else 0

    def publish(
        self,
        step: int,
        epoch: int,
        batch: int,
        phase: int,
        total_steps: int,
        steps_per_epoch: int,
        samples: int,
        seconds: float,
        samples_per_second: float,
        fraction: float,
    ) -> None:
        """Replaces the record; ``phase`` is an index into `PHASES`, the rest as in `ProgressRecord`.

        The arguments are positional, because this is called every step.
        """
        sequence = self._sequence = self._sequence + 1
        body = _BODY.pack(
            sequence,
            step,
            epoch,
            batch,
            min(total_steps, _MAX_COUNT),
            min(steps_per_epoch, _MAX_COUNT) * 8 + phase,
            samples_per_second,
            fraction,
            time.time(),
            seconds,
            samples,
        )
        at = self._at + sequence % 2 * _SLOT_BYTES
        self._map[at : at + len(body) + 4] = body + _CHECKSUM.pack(zlib.crc32(body))


def last_step(record: ProgressRecord, *, seconds_to_finish: float, seconds_to_end: float) -> int | None:
    """Returns the step at which a session will end that ends before the run is done, about; None if the run
    finishes before, or counts no steps.

    Args:
        record: The progress of the run.
        seconds_to_finish: How long the rest of the run takes.
        seconds_to_end: How long the session may still run.
    """
    if not record.total_steps or seconds_to_finish <= seconds_to_end:
        return None
    steps_left = record.total_steps - record.step
    return record.step + int(steps_left * max(0.0, seconds_to_end) / seconds_to_finish)


def reset(path: Path) -> None:
    """Clears the record. A new session does this first, long before it can publish."""
    path.unlink(missing_ok=True)  # not truncated: a reader may have the old file mapped
    path.touch()


def read(path: Path) -> ProgressRecord | None:
    """Returns the newest record; None if none was published yet."""
    return ProgressReader(path).read()


class ProgressReader:
    """Reads a record of the file ``path`` again and again; one that is still the same is not parsed again."""

    def __init__(self, path: Path, *, record: int = 0) -> None:
        self._path, self._at = path, record * _RECORD_BYTES
        self._data = b""
        self._record: ProgressRecord | None = None

    def read(self) -> ProgressRecord | None:
        """Returns the newest record; None if none was published yet."""
        try:
            fd = safe_read.open_fd(self._path)
        except OSError:
            return None
        try:
            for _ in range(_READ_TRIES):
                data = os.pread(fd, _RECORD_BYTES, self._at)
                if data == self._data and data:
                    return self._record
                found = _newest(data)
                if found is not None or not any(data):
                    self._data, self._record = data, found[1] if found is not None else None
                    return self._record
        finally:
            os.close(fd)
        return None


def _newest(data: bytes) -> tuple[int, ProgressRecord] | None:
    """Returns the valid slot with the higher sequence number."""
    slots = [data[at : at + _BODY.size + _CHECKSUM.size] for at in (0, _SLOT_BYTES)]
    slots.sort(key=_sequence, reverse=True)
    return next((found for slot in slots if (found := _parse(slot)) is not None), None)


def _sequence(slot: bytes) -> int:
    return int.from_bytes(slot[:8], "little")


def _parse(slot: bytes) -> tuple[int, ProgressRecord] | None:
    body = slot[: _BODY.size]
    if len(slot) < _BODY.size + _CHECKSUM.size or _CHECKSUM.unpack(slot[_BODY.size :])[0] != zlib.crc32(body):
        return None
    sequence, step, epoch, batch, total, packed, rate, fraction, wall, seconds, samples = _BODY.unpack(body)
    if sequence == 0 or packed % 8 >= len(PHASES):
        return None
    phase = PHASES[packed % 8]
    return sequence, ProgressRecord(
        step, epoch, batch, total, packed // 8, samples, seconds, rate, fraction, wall, phase
    )
