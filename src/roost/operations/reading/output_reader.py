"""Reading an output file while it grows, the hole in one that grew too long included.

The supervisor keeps the first and the last part of output that is longer than ``limits.output_mb``: it takes
the blocks in the middle out of the file (a hole), so that offsets stay as they are for whoever reads along.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from roost.base import safe_read
from roost.supervisor.output.output_file import left_out_line

_CHUNK_BYTES = 1 << 16


class OutputReader:
    """One file of output, opened when it is there, and kept open: at the end of a session it may be replaced
    by a shorter one, which a follower in its middle must not fall into.

    Args:
        path: The file; it need not exist yet.
        offset: Where to begin, in bytes.
        most: So many bytes are in a piece.
    """

    def __init__(self, path: Path, *, offset: int = 0, most: int = _CHUNK_BYTES) -> None:
        self._path, self.offset, self._most = path, offset, most
        self._fd = -1

    @property
    def size(self) -> int:
        """Bytes, of the file that is open; 0 before the first is read."""
        return os.fstat(self._fd).st_size if self._fd >= 0 else 0

    def new(self) -> Iterator[bytes]:
        """What was added since the last call, in pieces; in the place of a hole a line that says so.

        Raises:
            OSError: It cannot be read.
        """
        if self._fd < 0:
            try:
                self._fd = safe_read.open_fd(self._path, follow_link=False)
            except FileNotFoundError:
                return
        while True:
            start = _next_data(self._fd, self.offset)
            if start > self.offset:
                left_out, self.offset = start - self.offset, start
                yield b"\n" + left_out_line(left_out)
            piece = os.pread(self._fd, _bytes_before_hole(self._fd, start, self._most), start)
            if not piece:
                return
            self.offset += len(piece)
            yield piece

    def was_replaced(self) -> bool:
        """Whether another file stands in its place by now."""
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
    """Where the next bytes stand, at or after ``offset``; the end of the file when there are none."""
    if not hasattr(os, "SEEK_DATA"):
        return offset
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the end, or the end itself
            return max(offset, os.fstat(fd).st_size)
        return offset  # a disk that does not know holes has none


def _bytes_before_hole(fd: int, offset: int, most: int) -> int:
    """How many bytes to read from ``offset`` on, none of a hole among them, and not more than ``most``."""
    if not hasattr(os, "SEEK_HOLE"):
        return most
    try:
        return min(most, os.lseek(fd, offset, os.SEEK_HOLE) - offset)
    except OSError:  # the end, or no holes here
        return most


def tail_offset(path: Path, lines: int) -> int:
    """Where the last ``lines`` lines of a file begin, in bytes; reads from its end only, up to a hole."""
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
    # A line that is not ended yet counts: then there is one newline less to pass.
    wanted = lines
    end = size
    while end:
        start = max(0, end - _CHUNK_BYTES)
        floor = min(end, _next_data(fd, start))
        is_below_hole, start = floor > start, floor
        piece = os.pread(fd, end - start, start)
        if end == size and piece.endswith(b"\n"):
            wanted += 1
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if wanted == 0:
                return start + at + 1
        if is_below_hole:
            return start
        end = start
    return 0
