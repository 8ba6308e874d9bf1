"""Keeps the output of a run from filling the disk: its first and its last part are kept.

The worker writes straight into the file, so that nothing it printed is lost with the supervisor. In a file
that exceeds the limit the supervisor punches a hole: the blocks in the middle are freed, offsets stay as they
are, and followers continue. At the end of the session `shorten_file` rewrites the file without the hole, with
one line in its place.

::

    0 .......... half .............................. size - half .......... size
    | kept        |  hole, in whole blocks, while it runs |        kept      |
"""

# Standard library only

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from roost.supervisor.output.file_growth import FileGrowth
from roost.supervisor.output.output_file import LEFT_OUT_PATTERN, left_out_line, rank_output_path, write_line
from roost.supervisor.session_record import SessionRecordFile
from roost.supervisor.session_spec import SessionSpec

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of linux/falloc.h
_MAX_BYTES_PER_SECOND = 2e9
"""The fastest output assumed, in bytes per second; more than a page cache takes from one process."""
_MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 0.05, 1.0
_SEAM_BYTES = 4096
"""How far a cut may move to fall between two lines; the line in the cut fits in too."""
_CHUNK = 1 << 20
_MAX_LINE_BYTES = 256


class OutputCap:
    """Holds one growing file at ``limit_bytes`` of disk, plus what is printed between two checks.

    Args:
        fd: The file, open for writing.
        limit_bytes: How much of it is kept.
    """

    def __init__(self, fd: int, limit_bytes: int) -> None:
        self._fd, self._limit = fd, limit_bytes
        found = os.fstat(fd)
        self._is_file = stat.S_ISREG(found.st_mode)
        self._block = max(_SEAM_BYTES, found.st_blksize)
        self._hole_start = self._hole_end = -(-(limit_bytes // 2) // self._block) * self._block
        self._size = found.st_size
        self._is_new = True
        self.growth = FileGrowth(fd)
        """Signals when to check earlier than `check` returned."""

    def check(self) -> float:
        """Punches a hole if one is due; returns the seconds until the next check. Until then a run that
        prints as fast as it can takes half the limit more. A run that printed nothing since the last check is
        checked rarely, but again as soon as it prints.

        Raises:
            OSError: The file system has no holes; the file can then only be shortened at the end.
        """
        if not self._is_file:
            return _MAX_INTERVAL_SECONDS
        size = os.fstat(self._fd).st_size
        grew, self._size = size != self._size or self._is_new, size
        self._is_new = False  # an inotify instance delays the exit by 15 ms: none for a very short run
        if size < self._hole_end:  # the file was truncated
            self._hole_end = self._hole_start
        end = (size - self._limit // 2) // self._block * self._block
        if end - self._hole_end >= max(self._limit // 8, self._block):
            punch_hole(self._fd, self._hole_end, end)
            self._hole_end = end
        if not grew and self.growth.watch_next_write():
            return _MAX_INTERVAL_SECONDS
        used = size - (self._hole_end - self._hole_start)
        return min(
            _MAX_INTERVAL_SECONDS,
            max(_MIN_INTERVAL_SECONDS, (2 * self._limit - used) / 2 / _MAX_BYTES_PER_SECOND),
        )


def punch_hole(fd: int, start: int, end: int) -> None:
    """Frees the blocks between two offsets; they then read as zeros.

    Raises:
        OSError: This file system or machine cannot.
    """
    import ctypes

    libc: Any = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        raise OSError("this system has no fallocate")
    offset, length = ctypes.c_int64(start), ctypes.c_int64(end - start)
    if fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def shorten_file(path: str, limit_bytes: int) -> int:
    """Rewrites, durably, a file that is longer than the limit: its first part, one line with the number of
    bytes left out, its last part. No process may be writing into it.

    Returns:
        How many bytes are left out, those of earlier sessions at the same place included; 0: the file is
            short.

    Raises:
        OSError: The file cannot be written; the long one remains.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return 0
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size <= limit_bytes:
            return 0
        head_end, skip_to, before = _first_part(fd, max(0, limit_bytes // 2 - _SEAM_BYTES))
        tail_start = _last_part_start(fd, max(skip_to, found.st_size - limit_bytes // 2))
        left_out = before + tail_start - skip_to
        line = left_out_line(left_out)
        if head_end and os.pread(fd, 1, head_end - 1) != b"\n":
            line = b"\n" + line
        parts = (0, head_end), line, (tail_start, found.st_size)
        _replace(path, _pieces(fd, parts), mode=stat.S_IMODE(found.st_mode))
        return left_out
    finally:
        os.close(fd)


def shorten_session_output(spec: SessionSpec, record: SessionRecordFile, output_fd: int) -> bool:
    """Shortens the output of each rank, and records how many bytes were left out; returns whether the file of
    rank 0 was replaced. If the disk has no space for that, the holes stay, which readers skip."""
    in_all = left_out = 0
    for rank in reversed(range(max(1, len(spec.ranks)))):  # rank 0, whose file gets the messages, comes last
        left_out = 0
        try:
            left_out = shorten_file(rank_output_path(spec.output, rank), spec.limits.output_bytes)
        except OSError as error:
            write_line(output_fd, f"the output could not be shortened to limits.output_mb: {error}")
        in_all += left_out
    if in_all:
        record.fields.output_left_out_bytes = in_all
    return left_out > 0


def _first_part(fd: int, end: int) -> tuple[int, int, int]:
    """Returns where the first part ends, where the cut begins, and how many bytes an earlier cut there left
    out."""
    start = max(0, end - _SEAM_BYTES)
    seam = os.pread(fd, end - start + _MAX_LINE_BYTES, start)
    earlier = re.search(rb"\n?" + LEFT_OUT_PATTERN, seam)
    if earlier is not None:
        return start + earlier.start(), start + earlier.end(), int(earlier[1].replace(b",", b""))
    line_end = seam.rfind(b"\n", 0, end - start) + 1
    at = start + line_end if line_end else end - _num_incomplete_bytes(seam[: end - start])
    return at, at, 0


def _num_incomplete_bytes(data: bytes) -> int:
    """Returns how many bytes at the end belong to an incomplete UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 == 0xC0:  # the first byte, which contains the number of bytes
            size = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4
            return back if back < size else 0
        if data[-back] < 0x80:
            return 0
    return 0


def _last_part_start(fd: int, start: int) -> int:
    seam = os.pread(fd, _SEAM_BYTES, start)
    line_end = seam.find(b"\n") + 1
    if line_end:
        return start + line_end
    return start + next((i for i, byte in enumerate(seam[:4]) if byte & 0xC0 != 0x80), 0)


def _pieces(fd: int, parts: tuple[tuple[int, int] | bytes, ...]) -> Iterator[bytes]:
    for part in parts:
        if isinstance(part, bytes):
            yield part
            continue
        at, end = part
        while at < end and (piece := os.pread(fd, min(_CHUNK, end - at), at)):
            at += len(piece)
            yield piece


def _replace(path: str, pieces: Iterator[bytes], *, mode: int) -> None:
    from pathlib import Path

    from roost.base import durable

    final = Path(path)
    staging = durable.staging_name(final)
    durable.write_new(staging, pieces, mode=mode)
    try:
        durable.rename(staging, final)
    except BaseException:
        durable.discard(staging)
        raise
