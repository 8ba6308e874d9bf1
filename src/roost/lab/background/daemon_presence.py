"""Whether a lab's daemon is there: it holds a lock, and tells beside who it is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.lab.background import background_process
from roost.lab.queue import database

_LOCK, _RECORD = "daemon.lock", "daemon.json"
_RECORD_SECONDS, _TICK_SECONDS = 2.0, 0.005


class DaemonRecord(background_process.ProcessRecord, frozen=True, kw_only=True):
    """A daemon."""

    queue: str = ""
    """The file of the queue that it has opened, as `identity` tells it; empty where there was none."""


def write_record(folder: Path) -> None:
    """Tells who the daemon of a lab is: we, who hold its `lock` and have opened its queue.

    Raises:
        OSError: It cannot be written.
    """
    background_process.write_record(
        folder / _RECORD, DaemonRecord.own(queue=identity(folder / database.NAME))
    )


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
    state_folder.prepare(folder)
    if (fd := background_process.lock(folder / _LOCK)) is not None:
        return fd
    found = _wait_for_record(folder)
    who = f" (pid {found.pid})" if found is not None else ""
    raise Refused(f"this lab has a daemon already{who}", where=folder, fix="`roost lab status` tells of it")


def _wait_for_record(folder: Path) -> DaemonRecord | None:
    """Who has the lock; it may have it so newly that it has yet to tell."""
    deadline = time.monotonic() + _RECORD_SECONDS
    while (found := find_daemon(folder)) is None and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)
    return found


def find_daemon(folder: Path) -> DaemonRecord | None:
    """The daemon that lives; None if there is none."""
    return background_process.find_running(folder / _RECORD, DaemonRecord)


def stop(folder: Path) -> DaemonRecord | None:
    """Ends the daemon, as `background.stop` does. Raises RoostError if it does not end."""
    return background_process.stop(folder / _RECORD, DaemonRecord, "the lab's daemon")
