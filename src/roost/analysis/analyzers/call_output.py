"""Copies the part of an analyzer's output that one call printed into the folder of its analysis."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from roost.base import durable
from roost.base.text.left_out_line import left_out_line

MAX_BYTES = 16 * 2**20
"""Of a longer part the first and the last half of this are copied."""
_CHUNK_BYTES = 1 << 20


def copy(source: int, begin: int, end: int, to: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Copies bytes ``begin`` to ``end`` of a file, durably. A line takes the place of what is left out, and
    of what the supervisor has left out already.

    Args:
        source: The descriptor of the file.
        begin: The first byte.
        end: The byte after the last one.
        to: The new file.
        max_bytes: How much is copied.

    Raises:
        OSError: The part cannot be read, or the file cannot be written.
    """
    end = min(end, os.fstat(source).st_size)  # it may have been shortened
    staging = durable.staging_name(to)
    try:
        durable.write_new(staging, _pieces(source, begin, end, max_bytes))
        durable.rename(staging, to)
    except BaseException:
        durable.discard(staging)
        raise


def _pieces(source: int, begin: int, end: int, max_bytes: int) -> Iterator[bytes]:
    half = max_bytes // 2
    if end - begin <= max_bytes:
        yield from _read(source, begin, end)
        return
    yield from _read(source, begin, begin + half)
    yield b"\n" + left_out_line(end - begin - 2 * half)
    yield from _read(source, end - half, end)


def _read(source: int, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        start = min(end, _seek(source, at, os.SEEK_DATA, end))
        if start > at:
            yield b"\n" + left_out_line(start - at)
            at = start
            continue
        stop = min(end, at + _CHUNK_BYTES, max(at + 1, _seek(source, at, os.SEEK_HOLE, end)))
        piece = os.pread(source, stop - at, at)
        if not piece:
            return  # the file was shortened
        at += len(piece)
        yield piece


def _seek(fd: int, offset: int, whence: int, end: int) -> int:
    """Returns the next data or hole; ``end`` if there is none, and ``offset`` where the file system knows no
    holes."""
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        return end if error.errno == errno.ENXIO else offset if whence == os.SEEK_DATA else end
