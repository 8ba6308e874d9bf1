"""`Slot`: memory that this process shares with its loader workers; it holds one batch at a time."""

# Not durable: the file has no name and serves as memory, where the system has no memfd

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np

from roost.base.errors import TrainingError
from roost.base.system.host_memory import available_bytes
from roost.train.data.workers.batch_codec import ByteArray

_FIRST_BYTES = 1 << 16
_GROWTH = 1.125
"""Factor on the required size: batches of text vary in size, and each growth needs a new mapping."""
_CHECK_BYTES = 1 << 26
"""Growth above which free memory is checked first: the kernel would not refuse it, but kill a process
later."""
_SHM_FOLDER = Path("/dev/shm")
_MIN_SHM_BYTES = 1 << 30
"""Free space required in /dev/shm to use it: a container's has 64 MiB."""


class SharedMemoryFull(TrainingError):
    """A batch of a worker does not fit into memory; without workers it would need the memory only once."""


class Slot:
    """One piece of shared memory, which grows and never shrinks.

    It is a file without a name, so it vanishes with the last process that has it open, however that process
    ends. On Linux the file is outside of any file system, so the size of /dev/shm does not matter.

    Raises:
        SharedMemoryFull: The memory does not suffice.
        OSError: There is no free file descriptor.
    """

    def __init__(self) -> None:
        self._fd = _create_unnamed_file()
        self._mapped: Any = None
        self._view, self._num_mapped_bytes = memoryview(b""), 0
        try:
            self.memory(_FIRST_BYTES)
        except SharedMemoryFull:
            self.close()
            raise

    def memory(self, num_bytes: int = 0) -> memoryview[Any]:
        """Returns all memory that is mapped here, at least ``num_bytes``; grows the file for all processes if
        necessary.

        Raises:
            SharedMemoryFull: The space does not suffice; the slot is unchanged.
        """
        if num_bytes > self._num_mapped_bytes:
            try:
                self._grow(num_bytes)
                # The previous mapping is freed with its last view.
                self._mapped = mmap.mmap(self._fd, self.num_bytes)
            except OSError as error:
                raise _full_error(num_bytes, error.strerror or str(error)) from error
            self._view = memoryview(self._mapped)
            self._num_mapped_bytes = len(self._view)
        return self._view

    def _grow(self, num_bytes: int) -> None:
        size = self.num_bytes
        if num_bytes <= size:
            return
        new_size = -(-int(num_bytes * _GROWTH) // mmap.PAGESIZE) * mmap.PAGESIZE
        free = available_bytes() if new_size - size > _CHECK_BYTES else None
        if free is not None and new_size - size > free:
            raise _full_error(num_bytes, f"{free:,} bytes are free")
        if hasattr(os, "posix_fallocate"):
            # ftruncate would leave a hole, and writing there without space is a bus error.
            os.posix_fallocate(self._fd, size, new_size - size)
        else:
            os.ftruncate(self._fd, new_size)

    def bytes(self, num_bytes: int) -> ByteArray:
        """Returns the first bytes as a new array (num_bytes,), which all views of it keep alive."""
        self.memory(num_bytes)
        return np.frombuffer(self._mapped, np.uint8, num_bytes)

    @property
    def num_bytes(self) -> int:
        """Current size of the file."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Closes the file in this process; existing views stay valid."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._reset_mapping()

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["fd"].detach()
        self._reset_mapping()

    def _reset_mapping(self) -> None:
        self._mapped, self._view, self._num_mapped_bytes = None, memoryview(b""), 0


def _create_unnamed_file() -> int:
    with contextlib.suppress(AttributeError, OSError):  # not Linux, an old C library, or a seccomp filter
        return os.memfd_create("roost-batch")
    fd, name = tempfile.mkstemp(prefix="roost-batch-", dir=_SHM_FOLDER if _has_space(_SHM_FOLDER) else None)
    Path(name).unlink()
    return fd


def _has_space(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _MIN_SHM_BYTES


def _full_error(num_bytes: int, why: str) -> SharedMemoryFull:
    return SharedMemoryFull(
        f"a batch of {num_bytes:,} bytes does not fit into memory that is shared with loader workers: {why}",
        fix="use smaller batches, a smaller data.prefetch, or data.num_workers: 0",
    )
