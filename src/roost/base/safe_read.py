"""Reading files that roost may not have written: a regular file of limited size, or an error; never a
hang."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

MAX_SMALL_FILE_BYTES = 64 * 2**20
"""The JSON files that roost writes are far smaller."""
_LOCK_TICK_SECONDS = 0.005
_PIECE_BYTES = 1 << 20
"""Small enough to be still in the processor's cache when it is hashed."""
_MAPPED_BYTES = 1 << 16
"""From this size on the memory begins at a page, so that tensors may be views of it
(`byte_tensors.ALIGNMENT`)."""
_LARGE_BYTES = 1 << 22
"""From this size on large pages are requested."""


def open_fd(path: Path, *, follow_link: bool = True) -> int:
    """Opens a regular file for reading and returns the descriptor. Never waits: opening a FIFO the usual way
    would wait for its writer.

    Args:
        path: The file.
        follow_link: Whether ``path`` itself may be a symbolic link.

    Raises:
        OSError: The file does not exist, or is a folder, FIFO, device or socket.
    """
    flags = 0 if follow_link else os.O_NOFOLLOW
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


def open_inside(root: Path, name: str) -> int:
    """Opens a regular file below a folder for reading and returns the descriptor. Each folder of the name is
    opened relative to the one before and no link is followed, so that no process can put one in between.

    Args:
        root: The folder.
        name: The path of the file in it, with ``/`` between its parts.

    Raises:
        OSError: There is no such regular file below the folder.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or not _is_encodable(name):
        raise FileNotFoundError(errno.ENOENT, "is not the path of a file below the folder", name)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        found = os.open(parts[-1], flags, dir_fd=fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise FileNotFoundError(errno.ENOENT, "is not a regular file", name)
    return found


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # a surrogate that is no byte of a file name
        return False
    return True


def is_locked(path: Path) -> bool | None:
    """Whether a process holds the lock (flock) of a regular file; None if the file or its lock cannot be
    examined."""
    try:
        fd = open_fd(path)
    except OSError:
        return None
    try:
        fcntl.flock(
            fd, fcntl.LOCK_SH | fcntl.LOCK_NB
        )  # shared, so that two processes that look at once do not see each other
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(fd)
    return False


def try_lock(fd: int, seconds: float) -> bool:
    """Takes the lock (flock) of an open file or folder, for which it waits a while: another process may hold
    it for ever, as every user who may read the file can.

    Raises:
        OSError: The file system has no locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(_LOCK_TICK_SECONDS)


def read(path: Path, *, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytearray:
    """Returns all bytes of a regular file.

    Raises:
        OSError: The file cannot be read, is not a regular file, or has more than ``max_bytes`` bytes.
    """
    with open(open_fd(path), "rb", buffering=0) as file:
        data = bytearray(_size(file, path, max_bytes))
        view = memoryview(data)
        while view and (count := file.readinto(view)):
            view = view[count:]
        return data[: len(data) - len(view)] if view else data


def read_hashed(path: Path, *, max_bytes: int = MAX_SMALL_FILE_BYTES) -> tuple[memoryview[Any], str]:
    """Returns all bytes of a regular file, in separate writable memory, and their SHA-256.

    Raises:
        OSError: As `read`.
    """
    import hashlib  # 2 ms, which a list of packages does not need

    digest, end = hashlib.sha256(), 0
    with open(open_fd(path), "rb", buffering=0) as file:
        data = _memory(_size(file, path, max_bytes))
        while end < len(data) and (count := file.readinto(data[end : end + _PIECE_BYTES])):
            digest.update(data[end : end + count])
            end += count
    return data[:end], digest.hexdigest()


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a regular file without keeping its bytes in memory.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    import hashlib

    with open(open_fd(path), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(file: io.FileIO, path: Path, max_bytes: int) -> int:
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"has {size} bytes, more than {max_bytes}", os.fspath(path))
    return size


def _memory(size: int) -> memoryview[Any]:
    """Returns new memory, with large pages where it pays: small pages, each zeroed when it is first touched,
    take longer than reading and hashing."""
    if size < _MAPPED_BYTES:
        return memoryview(bytearray(size))
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_BYTES and sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without large pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(mapped)
