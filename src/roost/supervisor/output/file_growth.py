"""Waits for the growth of a file without polling it."""

# Standard library only

from __future__ import annotations

import os
from typing import Any

_MODIFY, _ONCE = 0x2, 0x80000000  # of sys/inotify.h


class FileGrowth:
    """Signals the next write into a file, once for each call of `watch_next_write`.

    Args:
        file_fd: The file, open.
    """

    def __init__(self, file_fd: int) -> None:
        self._path = f"/proc/self/fd/{file_fd}".encode()
        self._libc: Any = None
        self.fd = -1
        """Readable after that write; -1 before the first `watch_next_write`, and where there is no inotify
        (no Linux, or too many instances)."""

    def watch_next_write(self) -> bool:
        """Watches for the next write; False if that is impossible."""
        if self._libc is None:
            self._open()
        return self.fd >= 0 and self._libc.inotify_add_watch(self.fd, self._path, _MODIFY | _ONCE) >= 0

    def _open(self) -> None:
        import ctypes

        self._libc = ctypes.CDLL(None)
        if hasattr(self._libc, "inotify_init1"):
            self.fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)

    def clear(self) -> None:
        """Reads the event, so that `fd` is not readable any more."""
        os.read(self.fd, 4096)
