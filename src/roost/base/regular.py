"""Reading files that anybody may have put there: plain files of a sane size, or an error; never a hang."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

SMALL = 64 * 2**20
"""Bytes; JSON that roost writes is far below."""


def open_fd(path: Path) -> int:
    """A descriptor for reading a plain file. Opening a FIFO the usual way would wait for its writer.

    Raises:
        OSError: There is none, or it is a folder, FIFO, device or socket.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "is no plain file", os.fspath(path))


def read(path: Path, *, at_most: int = SMALL) -> bytearray:
    """All bytes of a plain file.

    Raises:
        OSError: It cannot be read, is no plain file, or has more than ``at_most`` bytes.
    """
    fd = open_fd(path)
    with open(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size > at_most:
            raise OSError(errno.EFBIG, f"has {size} bytes, more than {at_most}", os.fspath(path))
        data = bytearray(size)
        view = memoryview(data)
        while view and (count := file.readinto(view)):
            view = view[count:]
        return data[: size - len(view)] if view else data
