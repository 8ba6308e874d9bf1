"""Hears of a file's growth without looking at it again and again."""

# Standard library only

from __future__ import annotations

import os
from typing import Any

_MODIFY, _ONCE = 0x2, 0x80000000  # of sys/inotify.h


class FileGrowth:
    """Tells of the next write into a file, once for each `expect`.

    Args:
        file_fd: The file, open.
    """

    def __init__(self, file_fd: int) -> None:
        self._path = f"/proc/self/fd/{file_fd}".encode()
        self._libc: Any = None
        self.fd = -1
        """Readable after that write; -1 before the first `expect`, and where nobody tells (no Linux; too many
        are told already)."""

    def expect(self) -> bool:
        """Asks to be told of the next write; False: nobody will tell."""
        if self._libc is None:
            self._open()
        return self.fd >= 0 and self._libc.inotify_add_watch(self.fd, self._path, _MODIFY | _ONCE) >= 0

    def _open(self) -> None:
        import ctypes

        self._libc = ctypes.CDLL(None)
        if hasattr(self._libc, "inotify_init1"):
            self.fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)

    def take(self) -> None:
        """Takes what was told, so that `fd` is not readable any more."""
        os.read(self.fd, 4096)
