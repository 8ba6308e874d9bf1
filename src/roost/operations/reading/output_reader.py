"""Reads an output file while it grows, also one with a hole.

The supervisor keeps the first and the last part of output that is longer than ``limits.output_mb``. It
removes the blocks in the middle from the file (a hole), so that offsets stay valid for concurrent readers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from roost.base import safe_read
from roost.base.errors import RoostError
from roost.supervisor.output.output_file import left_out_line

_CHUNK_BYTES = 1 << 16


class OutputReader:
    """An output file, opened as soon as it exists, and kept open: at the end of a session a shorter file may
    replace it, in which the offset of a reader would be wrong.

    Args:
        path: The file; it need not exist yet.
        offset: The first byte to read.
        max_bytes: The largest number of bytes per read.
    """

    def __init__(self, path: Path, *, offset: int = 0, max_bytes: int = _CHUNK_BYTES) -> None:
        self._path, self.offset, self._max_bytes = path, offset, max_bytes
        self._fd = -1

    @property
    def size(self) -> int:
        """The size of the open file in bytes; 0 before the first read."""
        return os.fstat(self._fd).st_size if self._fd >= 0 else 0

    def read_new(self) -> Iterator[bytes]:
        """Yields the bytes since the last call. A line takes the place of a hole.

        Raises:
            RoostError: It is not a file, or cannot be opened.
            OSError: It cannot be read.
        """
        if self._fd < 0:
            try:
                self._fd = safe_read.open_fd(self._path, follow_link=False)
            except FileNotFoundError:
                return
            except OSError as error:
                cause = f"the output cannot be read: {error.strerror or error}"
                raise RoostError(
                    cause, where=self._path, fix="rename it: a session creates a new one"
                ) from error
        while True:
            start = _next_data(self._fd, self.offset)
            if start > self.offset:
                left_out, self.offset = start - self.offset, start
                yield b"\n" + left_out_line(left_out)
            piece = os.pread(self._fd, _bytes_before_hole(self._fd, start, self._max_bytes), start)
            if not piece:
                return
            self.offset += len(piece)
            yield piece

    def was_replaced(self) -> bool:
        """Whether another file has replaced the open one."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return self._fd >= 0 and not os.path.samestat(os.fstat(self._fd), now)

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _next_data(fd: int, offset: int) -> int:
    """Returns the offset of the next data at or after ``offset``; the end of the file if there is none."""
    if not hasattr(os, "SEEK_DATA"):
        return offset
    size = os.fstat(fd).st_size  # before the search: what is written after it would count as a hole
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the end, or the end itself
            return max(offset, size)
        return offset  # a file system without support for holes has none


def _bytes_before_hole(fd: int, offset: int, max_bytes: int) -> int:
    """Returns the number of bytes from ``offset`` up to the next hole, at most ``max_bytes``."""
    if not hasattr(os, "SEEK_HOLE"):
        return max_bytes
    try:
        return min(max_bytes, os.lseek(fd, offset, os.SEEK_HOLE) - offset)
    except OSError:  # the end, or no support for holes
        return max_bytes


def tail_offset(path: Path, lines: int) -> int:
    """Returns the offset of the last ``lines`` lines of a file. Reads backwards from its end, up to a
    hole."""
    try:
        fd = safe_read.open_fd(path)
    except FileNotFoundError:
        return 0
    try:
        return _tail_offset(fd, os.fstat(fd).st_size, lines)
    finally:
        os.close(fd)


def _tail_offset(fd: int, size: int, lines: int) -> int:
    if lines <= 0:
        return size
    # An unfinished last line counts as a line; then there is one newline less to find.
    remaining = lines
    end = size
    while end:
        start = max(0, end - _CHUNK_BYTES)
        floor = min(end, _next_data(fd, start))
        is_below_hole, start = floor > start, floor
        piece = os.pread(fd, end - start, start)
        if end == size and piece.endswith(b"\n"):
            remaining += 1
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            remaining -= 1
            if remaining == 0:
                return start + at + 1
        if is_below_hole:
            return start
        end = start
    return 0
