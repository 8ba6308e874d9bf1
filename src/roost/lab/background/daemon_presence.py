"""Whether the daemon of a lab runs: it holds a lock, and writes a record of itself next to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.lab.background import background_process
from roost.lab.background.background_process import ProcessFiles
from roost.lab.queue import database

_STOPPED = "daemon.stopped"
"""Exists from `stop` until the next daemon runs."""
_RECORD_SECONDS, _TICK_SECONDS = 2.0, 0.005


class DaemonRecord(background_process.ProcessRecord, frozen=True, kw_only=True):
    """The record of a daemon."""

    queue: str = ""
    """The `identity` of the queue file that it has opened; empty if there was none."""


def write_record(folder: Path) -> None:
    """Records this process as the daemon of a lab; it holds the `lock` and has opened the queue.

    Raises:
        OSError: The record cannot be written.
    """
    background_process.write_record(
        files(folder), DaemonRecord.of_this_process(queue=identity(folder / database.FILE_NAME))
    )
    durable.discard(folder / _STOPPED)


def files(folder: Path) -> ProcessFiles:
    """Returns the files of the daemon in the folder of a lab."""
    return ProcessFiles.of(folder, "daemon")


def identity(path: Path) -> str:
    """Returns which file is at a path now, by device and inode; empty if there is none."""
    try:
        return _identity(path.stat())
    except OSError:
        return ""


def _identity(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}"


def is_in_place(folder: Path, lock_fd: int, queue: str) -> bool:
    """Whether the lock and the queue that a daemon has opened are still those in its folder. If not, a second
    daemon can start there.

    Args:
        folder: The folder of the lab.
        lock_fd: The descriptor from `lock`.
        queue: The `identity` of the opened queue.
    """
    own = _identity(os.fstat(lock_fd))
    return identity(files(folder).lock) == own and identity(folder / database.FILE_NAME) == queue


def lock(folder: Path) -> int:
    """Takes the lock of the daemon of a lab, until the returned descriptor is closed.

    Raises:
        Refused: A daemon runs, or the folder is not usable.
        OSError: The lock file cannot be opened.
    """
    state_folder.prepare(folder)
    if (fd := background_process.lock(files(folder).lock)) is not None:
        return fd
    found = _wait_for_record(folder)
    who = f" (pid {found.pid})" if found is not None else ""
    raise Refused(f"this lab has a daemon already{who}", where=folder, fix="see `roost lab status`")


def _wait_for_record(folder: Path) -> DaemonRecord | None:
    """Returns the record of the process that has the lock; it may take a moment to write it."""
    deadline = time.monotonic() + _RECORD_SECONDS
    while (found := find_daemon(folder)) is None and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)
    return found


def find_daemon(folder: Path) -> DaemonRecord | None:
    """Returns the record of the running daemon; None if there is none."""
    return background_process.find_running(files(folder), DaemonRecord)


def is_lost(folder: Path) -> bool:
    """Whether a daemon ran here that was killed, or went down with the machine: none runs, and the user has
    stopped none.

    Raises:
        Refused: The folder belongs to another user.
    """
    state_folder.require_owner(folder)
    ran = files(folder).record.exists() and not (folder / _STOPPED).exists()
    return ran and find_daemon(folder) is None


def stop(folder: Path) -> DaemonRecord | None:
    """Ends the daemon, as `background_process.stop` does, and records that the user wants none until the next
    one is started. Raises RoostError if it does not end."""
    if files(folder).record.exists():
        durable.write(folder / _STOPPED, b"", mode=0o600)
    return background_process.stop(files(folder), DaemonRecord, "the lab's daemon")
