"""Waits for a new file in a folder: by inotify where this machine alone writes there, else by looking."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sys
from pathlib import Path

from roost.base.system import mounts

_CREATE, _MOVED_TO, _ONLYDIR = 0x100, 0x80, 0x0100_0000  # of sys/inotify.h
_LOOK_SECONDS = 0.1
"""Between two looks where there is no inotify, or another machine may add the file."""
_SAFETY_SECONDS = 5.0
"""An event that was lost, for whatever reason, costs this much time."""


class FolderWatch:
    """Watches one folder, from its construction on.

    Args:
        folder: The folder; it must exist.
    """

    def __init__(self, folder: Path) -> None:
        self._wake_fd, self._write_fd = os.pipe()
        self._fd = -1
        if sys.platform == "linux" and not mounts.is_remote(mounts.file_system_type(folder)):
            libc = ctypes.CDLL(None)
            self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._fd >= 0:
                libc.inotify_add_watch(self._fd, os.fsencode(folder), _CREATE | _MOVED_TO | _ONLYDIR)
        self._poll = select.poll()
        for fd in (self._wake_fd, self._fd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def wait(self) -> bool:
        """Waits until a file may have been added; False after `close`. May return without any.

        Raises:
            OSError: Other code of this process has closed the descriptors.
        """
        seconds = _SAFETY_SECONDS if self._fd >= 0 else _LOOK_SECONDS
        for fd, event in self._poll.poll(seconds * 1000):
            if event & select.POLLNVAL:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if fd == self._wake_fd:
                return False
            os.read(fd, 1 << 16)
        return True

    def close(self) -> None:
        """Ends `wait`, in whichever thread it is called."""
        os.write(self._write_fd, b"x")
