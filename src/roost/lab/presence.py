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
from roost.lab import place

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

    @property
    def lives(self) -> bool:
        """Whether exactly this process is still there."""
        return process.alive(self.pid, self.start_ticks, self.boot_id)


def take(folder: Path, *, now: float) -> int:
    """Becomes the daemon of a lab; gives the descriptor that makes us so until it is closed.

    Raises:
        Refused: There is one, or the folder will not do.
        OSError: The lock cannot be made.
    """
    fd = lock(folder)
    pid = os.getpid()
    told = About(
        pid=pid,
        start_ticks=process.start_ticks(pid),
        boot_id=process.boot_id(),
        version=__version__,
        started=now,
    )
    durable.write(folder / _ABOUT, msgspec.json.encode(told), mode=0o600)
    return fd


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
