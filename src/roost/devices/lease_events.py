"""Tells at once that a lease has ended or that others want something else, whoever they are (inotify).

A descriptor of a lease is open for writing as long as the lease is held. That the last one was closed is an
event of its folder, and comes from the kernel, however its process has ended.
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
    """Watches the folder of the leases while somebody waits.

    Where the system does not offer it, or has no more of it to give, `fd` stays None, and who waits has to
    look from time to time, as anyway: a hint that is lost costs time only.
    """

    def __init__(self) -> None:
        self.fd: int | None = None
        """Readable when there is something new."""

    def watch(self) -> None:
        """Begins, or goes on with folders that were made meanwhile."""
        if sys.platform != "linux":
            return
        import ctypes  # 1 MB, which a daemon for which nobody waits does without

        libc = ctypes.CDLL(None, use_errno=True)
        if self.fd is None:
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd < 0:
                return
            self.fd = fd
        root = lease_files.leases_folder()
        self._add(libc, root, _CREATE)
        with suppress(OSError):  # nobody has held anything yet
            for entry in os.scandir(root):
                self._add(libc, Path(entry.path), _CLOSE_WRITE | _MOVED_TO)

    def _add(self, libc: ctypes.CDLL, path: Path, events: int) -> None:
        """Of a folder that is watched already it changes nothing."""
        libc.inotify_add_watch(self.fd, os.fsencode(path), events | _ONLYDIR)

    def drain(self) -> None:
        """Takes all that has come, before it is looked at what it is."""
        if self.fd is not None:
            with suppress(BlockingIOError):
                while os.read(self.fd, _READ_BYTES):
                    pass

    def close(self) -> None:
        """Nobody waits."""
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None
