"""The file of a machine's samples: the newest ones second by second, and about a day at growing intervals.

::

    <folder of the leases>/samples/<uid>.samples     written by one process of this user, read by all users
        16 KiB   a line of JSON (`RingHeader`)
        level 0  900 records of 1 s
        level 1  720 records of 10 s, each the mean of its time
        level 2  1,440 records of 60 s

A record: seconds since boot and Unix seconds (float64) of its end, a state, one float32 for each column (NaN:
not measured), CRC-32. The record of a time has a fixed place, (seconds since boot / interval) modulo the
number of records, so a reader finds the newest one without a search; an old, torn or foreign record is seen
by its time and its checksum. The file has a fixed size, at most `MAX_BYTES`. Its owner is that of the inode,
never what the file says.
"""

# Standard library only
# Not durable: samples of now, replaced every second; nothing resumes from them

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roost.base.system import process_identity
from roost.devices import shared_folder
from roost.devices.sampling import machine_columns

FORMAT = 1
MAX_BYTES = 2**20
_FREE_SHARE = 0.25
"""A ring takes at most this part of the free space: the folder of the leases may be a small tmpfs."""
_HEADER_BYTES = 1 << 14
_LEVELS = ((1.0, 900), (10.0, 720), (60.0, 1440))
_LEAST_RECORDS = 30
_NAME = re.compile(r"([0-9]{1,10})\.samples")
_MAX_COLUMNS = 64
"""Of a card, or of the host."""
FRESH_SECONDS = 3.5
"""A newest sample that is older is not used: its sampler has ended, or hangs."""
_AHEAD_SECONDS = 2.0

STATES = ("", "the driver of the cards does not answer", "the cards could not be asked", "no answer yet")
"""Why a sample has no cards, by the state of its record; empty: it has, or the machine has none."""
NO_SAMPLE = "no process samples this machine"


class MachineSample(NamedTuple):
    """The machine at one moment."""

    boot_seconds: float
    time: float
    """Unix seconds."""
    state: int
    """Index into `STATES`."""
    values: tuple[float, ...]
    """By column; NaN: not measured."""


class RingHeader(NamedTuple):
    """The facts about a ring, which do not change."""

    cards: list[dict[str, Any]]
    """id, name, total_mb of each card."""
    host: dict[str, Any]
    """name, cores, memory_mb."""
    host_columns: tuple[str, ...] = machine_columns.HOST_COLUMNS
    card_columns: tuple[str, ...] = machine_columns.CARD_COLUMNS
    boot_id: str = ""
    pid: int = 0
    """The process that writes it."""
    levels: tuple[tuple[float, int], ...] = ()
    """Seconds and number of records of each level."""
    format: int = FORMAT

    def columns(self) -> list[str]:
        """Returns the names of the values of a sample: ``host/cpu``, then ``<card>/utilization``."""
        of_cards = (f"{card['id']}/{name}" for card in self.cards for name in self.card_columns)
        return [*(f"{machine_columns.HOST}/{name}" for name in self.host_columns), *of_cards]


def boot_seconds() -> float:
    """Returns the seconds since boot, with those in which the machine slept: no change of the clock moves
    them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _record_format(num_columns: int) -> struct.Struct:
    return struct.Struct(f"<ddI{num_columns}f")


_CHECKSUM = struct.Struct("<I")


class RingWriter:
    """Writes a ring, which replaces the one of the same user; of the one that is given, the samples of the
    columns that both have are kept.

    Args:
        folder_fd: The folder of the rings.
        header: Its columns, cards and host; the rest is filled in here.
        former: The ring whose history goes on.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, folder_fd: int, header: RingHeader, former: RingReader | None = None) -> None:
        self.columns = header.columns()
        self._format = _record_format(len(self.columns))
        record_bytes = self._format.size + _CHECKSUM.size
        disk = os.fstatvfs(folder_fd)
        free = disk.f_bavail * disk.f_frsize
        most = min(MAX_BYTES, free * _FREE_SHARE) - _HEADER_BYTES
        share = min(1.0, most / (record_bytes * sum(count for _, count in _LEVELS)))
        levels = tuple((seconds, max(_LEAST_RECORDS, int(count * share))) for seconds, count in _LEVELS)
        self.header = header._replace(levels=levels, boot_id=process_identity.boot_id(), pid=os.getpid())
        self._sums = [_MeanOf(len(self.columns)) for _ in levels[1:]]
        name = f"{os.geteuid()}.samples"
        staging = f"{name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging, dir_fd=folder_fd)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(staging, flags, 0o644, dir_fd=folder_fd)
        try:
            os.fchmod(self._fd, 0o644)  # a narrow umask would hide it from the others
            text = json.dumps(self.header._asdict()).encode() + b"\n"
            if len(text) > _HEADER_BYTES:
                raise OSError(f"{len(header.cards)} cards are more than a ring can have")
            os.pwrite(self._fd, text, 0)
            os.ftruncate(self._fd, _HEADER_BYTES + record_bytes * sum(count for _, count in levels))
            if former is not None:
                self._copy(former)
            os.rename(staging, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except BaseException:
            self.close()
            raise

    def _copy(self, former: RingReader) -> None:
        places = {name: at for at, name in enumerate(former.columns)}
        at = [places.get(name) for name in self.columns]
        for level in range(len(self.header.levels)):
            for sample in former.level(level):
                values = [math.nan if one is None else sample.values[one] for one in at]
                self._write(level, sample._replace(values=tuple(values)))

    def add(self, sample: MachineSample) -> None:
        """Writes one sample, and the means of longer times that end with it. Raises OSError."""
        self._write(0, sample)
        for level, mean in enumerate(self._sums, start=1):
            ended = mean.add(sample, self.header.levels[level][0])
            if ended is not None:
                self._write(level, ended)

    def _write(self, level: int, sample: MachineSample) -> None:
        body = self._format.pack(sample.boot_seconds, sample.time, sample.state, *sample.values)
        at = _place(self.header, self._format.size + _CHECKSUM.size, level, sample.boot_seconds)
        os.pwrite(self._fd, body + _CHECKSUM.pack(zlib.crc32(body)), at)

    def is_replaced(self) -> bool:
        """Whether another process of this user writes another file in the place of this one."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        """Closes the file, which stays for readers."""
        os.close(self._fd)


class _MeanOf:
    """The mean of the samples of one interval."""

    def __init__(self, num_columns: int) -> None:
        self._count = [0] * num_columns
        self._sum = [0.0] * num_columns
        self._last: MachineSample | None = None

    def add(self, sample: MachineSample, seconds: float) -> MachineSample | None:
        """Adds a sample; returns the mean of the interval before, when this one begins another."""
        last, ended = self._last, None
        if last is not None and last.boot_seconds // seconds != sample.boot_seconds // seconds:
            means = [
                total / count if count else math.nan
                for total, count in zip(self._sum, self._count, strict=True)
            ]
            ended = last._replace(values=tuple(means))
            self._count, self._sum = [0] * len(means), [0.0] * len(means)
        for at, value in enumerate(sample.values):
            if value == value:  # not NaN
                self._count[at] += 1
                self._sum[at] += value
        self._last = sample
        return ended


class RingReader:
    """Reads a ring.

    Args:
        fd: The file, which is closed with this object.

    Raises:
        ValueError: The file is no ring of this boot of this machine.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.header = _header(os.pread(fd, _HEADER_BYTES, 0))
        self.columns = self.header.columns()
        self._format = _record_format(len(self.columns))
        self._record_bytes = self._format.size + _CHECKSUM.size

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def is_replaced(self) -> bool:
        """Whether another file has taken the place of this one."""
        return os.fstat(self._fd).st_nlink == 0

    def between(self, after: float, until: float) -> list[MachineSample]:
        """Returns the samples of single seconds in a time, in seconds since boot."""
        seconds, count = self.header.levels[0]
        first = max(int(after // seconds), int(until // seconds) - count + 1)
        found = (self._read(0, slot * seconds) for slot in range(first, int(until // seconds) + 1))
        return [one for one in found if one is not None and after < one.boot_seconds <= until]

    def level(self, level: int) -> list[MachineSample]:
        """Returns all samples of a level, the oldest first."""
        seconds, count = self.header.levels[level]
        now, size = boot_seconds(), self._record_bytes
        data = os.pread(self._fd, size * count, _place(self.header, size, level, 0.0))
        found = (self._parse(data[at : at + size]) for at in range(0, len(data), size))
        oldest = now - seconds * count
        return sorted(one for one in found if one is not None and oldest <= one.boot_seconds <= now + 1)

    def _read(self, level: int, at_boot_seconds: float) -> MachineSample | None:
        at = _place(self.header, self._record_bytes, level, at_boot_seconds)
        return self._parse(os.pread(self._fd, self._record_bytes, at))

    def _parse(self, data: bytes) -> MachineSample | None:
        body = data[: self._format.size]
        if len(data) < self._record_bytes or _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0] != zlib.crc32(body):
            return None
        boot, wall, state, *values = self._format.unpack(body)
        is_possible = 0 < boot < 1e11 and 0 < wall < 1e11 and state < len(STATES)
        if not is_possible or any(math.isinf(value) for value in values):
            return None
        return MachineSample(boot, wall, state, tuple(values))


def _place(header: RingHeader, record_bytes: int, level: int, at_boot_seconds: float) -> int:
    """Where the record of a time begins."""
    before = sum(count for _, count in header.levels[:level])
    seconds, count = header.levels[level]
    return _HEADER_BYTES + record_bytes * (before + int(at_boot_seconds // seconds) % count)


def _header(data: bytes) -> RingHeader:
    """The header; every user may have written it."""
    try:
        found = RingHeader(**json.loads(data.partition(b"\n")[0]))
        levels = tuple((float(seconds), int(count)) for seconds, count in found.levels)
        is_valid = (
            found.format == FORMAT
            and len(levels) == len(_LEVELS)
            and all(0 < seconds <= 3600 and 0 < count <= 1 << 14 for seconds, count in levels)
            and all(map(_are_names, (found.host_columns, found.card_columns)))
            and len(found.cards) <= machine_columns.MAX_CARDS
            and all(map(_is_card, found.cards))
            and isinstance(found.host, dict)
        )
    except (ValueError, TypeError, RecursionError, OverflowError):
        is_valid = False
    if not is_valid:
        raise ValueError("it is no file of samples")
    if found.boot_id != process_identity.boot_id():
        raise ValueError("it is of another boot")
    return found._replace(levels=levels)


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, list | tuple)
        and len(names) <= _MAX_COLUMNS
        and all(isinstance(name, str) for name in names)
    )


def _is_card(card: Any) -> bool:
    return (
        isinstance(card, Mapping)
        and isinstance(card.get("id"), str)
        and isinstance(card.get("name"), str)
        and isinstance(card.get("total_mb"), int)
    )


def open_rings(folder: str) -> Iterator[RingReader]:
    """Yields the rings of a folder, of all users: regular files that belong to the user in their name. The
    caller closes each."""
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        names = shared_folder.list_user_files(folder_fd, max_per_user=1, pattern=_NAME)
        for name in names:
            ring = _open(folder_fd, name)
            if ring is not None:
                yield ring
    except OSError:
        return
    finally:
        os.close(folder_fd)


def _open(folder_fd: int, name: str) -> RingReader | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and name == f"{found.st_uid}.samples":
            return RingReader(fd)
    except (OSError, ValueError):
        pass
    os.close(fd)
    return None


def newest_ring(folder: str, *, is_fresh: bool = False) -> RingReader | None:
    """Returns the ring with the newest sample; None if there is none. The caller closes it.

    Args:
        folder: The folder of the rings.
        is_fresh: Whether a ring counts only if it has a sample of now.
    """
    best: tuple[float, RingReader] | None = None
    for ring in open_rings(folder):
        at = _newest_time(ring, is_fresh=is_fresh)
        if at is None or (best is not None and best[0] >= at):
            ring.close()
            continue
        if best is not None:
            best[1].close()
        best = at, ring
    return None if best is None else best[1]


def _newest_time(ring: RingReader, *, is_fresh: bool) -> float | None:
    now = boot_seconds()
    recent = ring.between(now - FRESH_SECONDS, now + _AHEAD_SECONDS)
    if recent or is_fresh:
        return recent[-1].boot_seconds if recent else None
    older: Sequence[MachineSample] = [one for level in range(3) for one in ring.level(level)[-1:]]
    return max((one.boot_seconds for one in older), default=None)


class LiveSamples:
    """Follows the samples of now, whichever process writes them.

    Args:
        folder: The folder of the rings.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ring: RingReader | None = None
        self._last = boot_seconds()
        self._found_at = self._last

    @property
    def header(self) -> RingHeader | None:
        """The header of the ring that is followed."""
        return None if self._ring is None else self._ring.header

    def new(self) -> list[MachineSample]:
        """Returns the samples since the last call; if there was none for some seconds, another ring is
        looked for."""
        now = boot_seconds()
        found = self._new(now)
        if not found and now - self._found_at > FRESH_SECONDS:
            self.close()
            self._ring = newest_ring(self._folder, is_fresh=True)
            found = self._new(now)
        if found:
            self._last = found[-1].boot_seconds
            self._found_at = now
        return found

    def missed_seconds(self) -> float:
        """Returns how long samples have been missed; 0: they come, one may be late."""
        missed = boot_seconds() - self._found_at
        return missed if self._ring is None or missed > FRESH_SECONDS else 0.0

    def close(self) -> None:
        """Closes the ring."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _new(self, now: float) -> list[MachineSample]:
        if self._ring is None or self._ring.is_replaced():
            self.close()
            self._ring = newest_ring(self._folder, is_fresh=True)
        return [] if self._ring is None else self._ring.between(self._last, now)
