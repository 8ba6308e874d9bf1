"""Reports at once that a lease has ended, or that another queue's demand has changed (inotify).

A descriptor of a lease is open for writing as long as the lease is held. When the last one is closed, the
kernel reports an event of its folder, however its process has ended.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roost.devices import lease_files

if TYPE_CHECKING:
    import ctypes

_CLOSE_WRITE, _MOVED_TO, _CREATE, _ONLYDIR = 0x8, 0x80, 0x100, 0x0100_0000
_READ_BYTES = 1 << 16


class LeaseEvents:
    """Watches the folder of the leases while a task waits for a card.

    If the system has no inotify, or no instance left, `fd` stays None. The caller has to poll from time to
    time in any case: a lost event costs time only.
    """

    def __init__(self) -> None:
        self.fd: int | None = None
        """A descriptor that becomes readable with each event."""

    def watch(self) -> None:
        """Starts watching, or adds the folders that were created since the last call."""
        if sys.platform != "linux":
            return
        import ctypes  # 1 MB, which a daemon without waiting tasks saves

        libc = ctypes.CDLL(None, use_errno=True)
        if self.fd is None:
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd < 0:
                return
            self.fd = fd
        root = lease_files.leases_folder()
        self._add(libc, root, _CREATE)
        with suppress(OSError):  # no lease was ever taken
            for entry in os.scandir(root):
                self._add(libc, Path(entry.path), _CLOSE_WRITE | _MOVED_TO)

    def _add(self, libc: ctypes.CDLL, path: Path, events: int) -> None:
        """Has no effect on a folder that is watched already."""
        libc.inotify_add_watch(self.fd, os.fsencode(path), events | _ONLYDIR)

    def drain(self) -> None:
        """Discards the pending events; to be called before the leases are read."""
        if self.fd is not None:
            with suppress(BlockingIOError):
                while os.read(self.fd, _READ_BYTES):
                    pass

    def close(self) -> None:
        """Stops watching."""
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None
