"""Where a run is, in one mapped record that its worker publishes each step and anybody may read.

Publishing costs about a microsecond and no system call, so it is done every step: the bar, stall detection
and attach all read the same bytes. The record survives the death of the worker.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("<QQqqqqqddddQ")
_SEQUENCE = struct.Struct("<Q")
_MAGIC = 0x31_54_53_4F_4F_52  # "ROOST1"
_READ_TRIES = 1000
_MAX_COUNT = 2**62

PHASES = ("starting", "training", "validating", "testing", "saving", "ended")


@dataclass(frozen=True)
class Snapshot:
    """One look at a run. ``total_steps`` and ``steps_per_epoch`` are 0 while unknown; ``wall`` is the Unix
    time of publishing, ``seconds`` the training time over all sessions, ``samples_per_second`` recent."""

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


class Board:
    """Publishes snapshots into ``path``, which is made if it does not exist."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, _LAYOUT.size)
            self._map = mmap.mmap(fd, _LAYOUT.size)
        finally:
            os.close(fd)
        self._sequence = 0

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
        """Replaces the record; ``phase`` is an index into `PHASES`, the rest as in `Snapshot`.

        A reader that comes in between sees two sequence numbers that differ. By position, because this is
        called every step.
        """
        sequence = self._sequence = self._sequence + 2
        _SEQUENCE.pack_into(self._map, 8, sequence - 1)
        _LAYOUT.pack_into(
            self._map,
            0,
            _MAGIC,
            sequence - 1,
            step,
            epoch,
            batch,
            min(total_steps, _MAX_COUNT),
            steps_per_epoch * 8 + phase,
            samples_per_second,
            fraction,
            time.time(),
            seconds,
            samples,
        )
        _SEQUENCE.pack_into(self._map, 8, sequence)

    def close(self) -> None:
        """Lets the file go; what was published stays in it."""
        self._map.close()


def read(path: Path) -> Snapshot | None:
    """The newest snapshot, or None when nothing was published yet."""
    try:
        with path.open("rb") as file:
            for _ in range(_READ_TRIES):
                data = os.pread(file.fileno(), _LAYOUT.size, 0)
                again = os.pread(file.fileno(), _SEQUENCE.size, 8)
                snapshot = _parse(data, again)
                if snapshot is not None or len(data) < _LAYOUT.size or not any(data):
                    return snapshot
    except OSError:
        return None
    return None


def _parse(data: bytes, sequence_after: bytes) -> Snapshot | None:
    if len(data) < _LAYOUT.size:
        return None
    magic, sequence, *body = _LAYOUT.unpack(data)
    if magic != _MAGIC or sequence % 2 or _SEQUENCE.unpack(sequence_after)[0] != sequence:
        return None
    step, epoch, batch, total_steps, packed, rate, fraction, wall, seconds, samples = body
    return Snapshot(
        step, epoch, batch, total_steps, packed // 8, samples, seconds, rate, fraction, wall, PHASES[packed % 8]
    )
