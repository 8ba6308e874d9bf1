"""Memory that this process and its workers share: one slot takes one batch at a time."""

# Not durable: a file that has no name, for memory, where the system has none without a file

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
"""Times what is needed: batches of text differ a little in size, and growing means mapping anew."""
_CHECK_BYTES = 1 << 26
"""From where on it is asked whether the memory has room before it is taken: the kernel would not refuse it,
but kill somebody."""
_SHM_FOLDER = Path("/dev/shm")
_MIN_SHM_BYTES = 1 << 30
"""That must be free there: a container's has 64 MiB."""


class SharedMemoryFull(TrainingError):
    """A batch of a worker does not fit into memory: without workers it would be there only once."""


class Slot:
    """One piece of shared memory, which grows and never shrinks.

    It is a file without a name, so nothing is left of it when the last process that has it is gone, however
    that ends; and on Linux one without a file system, so the size of /dev/shm does not matter.

    Raises:
        NoRoom: There is no memory for it.
        OSError: There is no descriptor for it.
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
        """All of it, as far as it is known here, and ``num_bytes`` at least; made larger if need be, for all
        who have it.

        Raises:
            NoRoom: There is no space; it stays as it was.
        """
        if num_bytes > self._num_mapped_bytes:
            try:
                self._grow(num_bytes)
                # A mapping of before goes when the last view of it does.
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
        wanted = -(-int(num_bytes * _GROWTH) // mmap.PAGESIZE) * mmap.PAGESIZE
        free = available_bytes() if wanted - size > _CHECK_BYTES else None
        if free is not None and wanted - size > free:
            raise _full_error(num_bytes, f"{free:,} bytes are free")
        if hasattr(os, "posix_fallocate"):
            # A file that is only made longer has a hole, and to write there without space is a bus error.
            os.posix_fallocate(self._fd, size, wanted - size)
        else:
            os.ftruncate(self._fd, wanted)

    def bytes(self, num_bytes: int) -> ByteArray:
        """(num_bytes,) its begin, as an object of its own, which all views of it keep alive."""
        self.memory(num_bytes)
        return np.frombuffer(self._mapped, np.uint8, num_bytes)

    @property
    def num_bytes(self) -> int:
        """How large it is by now."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Lets go of it here; views that are still held stay good."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["fd"].detach()
        self._forget()

    def _forget(self) -> None:
        self._mapped, self._view, self._num_mapped_bytes = None, memoryview(b""), 0


def _create_unnamed_file() -> int:
    with contextlib.suppress(AttributeError, OSError):  # not of Linux, an old C library, or a filter of calls
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
        fix="smaller batches, a smaller data.prefetch, or data.num_workers: 0",
    )
