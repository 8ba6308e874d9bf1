"""Whether a server is there: it holds a lock, and tells beside who it is and where."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec

from roost import __version__
from roost.base import process, regular
from roost.base.errors import Refused

LOCK, ABOUT = "server.lock", "server.json"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A server."""

    pid: int
    start_ticks: int | None
    boot_id: str
    version: str
    port: int
    started: float

    @classmethod
    def own(cls, port: int) -> About:
        """Of this process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            start_ticks=process.start_ticks(pid),
            boot_id=process.boot_id(),
            version=__version__,
            port=port,
            started=time.time(),
        )

    @property
    def lives(self) -> bool:
        """Whether exactly this process is still there."""
        return process.alive(self.pid, self.start_ticks, self.boot_id)


def lock(folder: Path) -> int:
    """Becomes the server of a lab; gives the descriptor that makes us so until it is closed.

    Raises:
        Refused: There is one.
        OSError: The lock cannot be made.
    """
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        found = about(folder)
        who = f" (pid {found.pid}, port {found.port})" if found is not None else ""
        raise Refused(f"a server runs already{who}", fix="`roost server status` tells of it") from None
    return fd


def about(folder: Path) -> About | None:
    """The server that runs; None if there is none."""
    try:
        found = msgspec.json.decode(bytes(regular.read(folder / ABOUT)), type=About)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.lives else None
