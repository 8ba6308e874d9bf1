"""Whether a lab's daemon is there: it holds a lock, and tells beside who it is."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import msgspec

from roost import __version__
from roost.base import durable, process, regular
from roost.base.errors import Refused
from roost.lab import database, place

_LOCK, _ABOUT = "daemon.lock", "daemon.json"
_TOLD_SECONDS, _TICK_SECONDS = 2.0, 0.005


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Who a daemon is."""

    pid: int
    start_ticks: int | None
    boot_id: str
    version: str
    """Of roost."""
    started: float
    queue: str = ""
    """The file of the queue that it has opened, as `identity` tells it; empty where there was none."""

    @property
    def lives(self) -> bool:
        """Whether exactly this process is still there."""
        return process.alive(self.pid, self.start_ticks, self.boot_id)


def tell(folder: Path, *, now: float) -> None:
    """Tells who the daemon of a lab is: we, who hold its `lock` and have opened its queue.

    Args:
        folder: The lab's.
        now: Unix seconds.

    Raises:
        OSError: It cannot be written.
    """
    pid = os.getpid()
    told = About(
        pid=pid,
        start_ticks=process.start_ticks(pid),
        boot_id=process.boot_id(),
        version=__version__,
        started=now,
        queue=identity(folder / database.NAME),
    )
    durable.write(folder / _ABOUT, msgspec.json.encode(told), mode=0o600)


def identity(path: Path) -> str:
    """Which file stands at a path now; empty if none does."""
    try:
        return _identity(path.stat())
    except OSError:
        return ""


def _identity(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}"


def is_in_place(folder: Path, lock_fd: int, queue: str) -> bool:
    """Whether the lock and the queue that a daemon has opened are still those that others find in its folder:
    else a second daemon comes up beside it.

    Args:
        folder: The lab's.
        lock_fd: As `lock` gave it.
        queue: The `identity` of its queue.
    """
    own = _identity(os.fstat(lock_fd))
    return identity(folder / _LOCK) == own and identity(folder / database.NAME) == queue


def lock(folder: Path) -> int:
    """Keeps every daemon from a lab, until the descriptor that it gives is closed.

    Raises:
        Refused: There is a daemon, or the folder will not do.
        OSError: The lock cannot be made.
    """
    place.prepare(folder)
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        found = _introduced(folder)
        who = f" (pid {found.pid})" if found is not None else ""
        raise Refused(
            f"this lab has a daemon already{who}", where=folder, fix="`roost lab status` tells of it"
        ) from None
    return fd


def _introduced(folder: Path) -> About | None:
    """Who has the lock; it may have it so newly that it has yet to tell."""
    deadline = time.monotonic() + _TOLD_SECONDS
    while (found := about(folder)) is None and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)
    return found


def about(folder: Path) -> About | None:
    """The daemon that lives; None if there is none."""
    try:
        found = msgspec.convert(json.loads(regular.read(folder / _ABOUT)), About)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
    return found if found.lives else None
