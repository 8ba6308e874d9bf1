"""Hears of a file's growth without looking at it again and again."""

from __future__ import annotations

import os
from typing import Any

_MODIFY, _ONCE = 0x2, 0x80000000  # of sys/inotify.h


class Growth:
    """Tells of the next write into a file, once for each `expect`.

    Args:
        file_fd: The file, open.
    """

    def __init__(self, file_fd: int) -> None:
        import ctypes

        self._libc: Any = ctypes.CDLL(None)
        self._path = f"/proc/self/fd/{file_fd}".encode()
        has_it = hasattr(self._libc, "inotify_init1")
        self.fd: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if has_it else -1
        """Readable after that write; -1 where nobody tells (no Linux; too many are told already)."""

    def expect(self) -> bool:
        """Asks to be told of the next write; False: nobody will tell."""
        return self.fd >= 0 and self._libc.inotify_add_watch(self.fd, self._path, _MODIFY | _ONCE) >= 0

    def take(self) -> None:
        """Takes what was told, so that `fd` is not readable any more."""
        os.read(self.fd, 4096)
