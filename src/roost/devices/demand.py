"""What the queues of a machine wait for, so that a free card goes to the user who has had least, and not to
the process that polls fastest.

::

    <folder of the leases>/wants/<uid>-<token>.json    demand of one queue; its flock: the queue's daemon

A file is replaced whole, by its owner only. The file system says who owns it; its content is bounded in size,
and `roost.lab.scheduling.other_queues` limits how far it is trusted. A file whose flock is free has no
process any more: its owner removes it later, all others ignore it.
"""

# Not durable: shows other queues a demand while it exists; nothing resumes from it

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from roost.base import durable
from roost.devices import lease_files, shared_folder
from roost.devices.lease_files import WANTS_FOLDER
from roost.devices.resource_request import MAX_CARDS

MAX_DEMANDS = 64
"""Demands in one file: other queues do not yet consider those after them."""
_MAX_BYTES = 1 << 19
_MAX_FILES = 32
"""Files of one user that are read; the others are ignored."""
_MAX_REPLACED = 4
"""How often a file may be replaced while it is read."""
_FRESH_SECONDS = 60.0
"""A queue that has not renewed its file for so long hangs, or was stopped (SIGSTOP)."""
_LEFTOVER_SECONDS = 60.0
"""An unlocked file older than this is a leftover; a younger one may be about to be published."""

_Name = Annotated[str, Meta(max_length=256)]


class CardDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The demand of one task that would start now if the cards were free."""

    cards: Annotated[int, Meta(ge=1, le=MAX_CARDS)]
    mb: Annotated[int, Meta(ge=1, le=2**40)] | None = None
    """Memory of each card in MB; None: whole cards."""
    least_mb: Annotated[int, Meta(ge=0, le=2**40)] = 0
    """The least memory of a whole card in MB."""
    seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    """The task's time limit, or its estimated duration."""
    since: Annotated[float, Meta(ge=0, le=1e12)]
    """Since when it waits, in Unix seconds."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    """Compared with the user's own tasks only."""
    opportunistic: bool = False


class DemandRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a demand file."""

    wants: Annotated[tuple[CardDemand, ...], Meta(max_length=MAX_DEMANDS)]
    """In the order in which the tasks are to start."""
    closed: Annotated[tuple[_Name, ...], Meta(max_length=MAX_CARDS)] = ()
    """Cards that this queue does not use."""
    ends: Annotated[dict[_Name, Annotated[float, Meta(ge=0, le=1e12)]], Meta(max_length=MAX_CARDS)] = {}
    """The expected ends, as far as known, of the queue's tasks that hold leases, by task id: Unix seconds."""


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """The demand file of a queue whose process runs."""

    uid: int
    token: str
    record: DemandRecord


class DemandFile:
    """The demand of this process's queue, visible to other queues from `publish` until `withdraw` or the end
    of the process."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._fd: int | None = None
        self._record: DemandRecord | None = None
        self._path = Path()

    def publish(self, record: DemandRecord) -> None:
        """Replaces the published demand. To be called regularly, also with an unchanged record: readers
        ignore a file that was not renewed for a while.

        Raises:
            OSError: The file cannot be written.
            Refused: See `roost.devices.lease_files.make_shared_folder`.
        """
        if self._fd is not None and record == self._record:
            os.utime(self._fd)
            return
        root = lease_files.make_shared_folder(
            lease_files.make_shared_folder(lease_files.leases_folder()) / WANTS_FOLDER
        )
        if self._fd is None:
            _remove_leftovers(root)
            self._path = root / lease_files.file_name(os.geteuid(), self.token)
        staging = durable.staging_name(self._path)
        fd = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o644)  # a narrow umask would hide it from the others
            durable.append(fd, msgspec.json.encode(record))
            staging.rename(self._path)
        except BaseException:
            durable.discard(staging)
            os.close(fd)
            raise
        self._close()
        self._fd, self._record = fd, record

    def withdraw(self) -> None:
        """Removes the published demand."""
        if self._fd is not None:
            with suppress(OSError):  # once closed, a remaining file is ignored
                self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = self._record = None


def read_demands(*, exclude: str = "") -> list[QueueDemand]:
    """Returns the demands of all queues with a running process, in the order of their file names.

    Args:
        exclude: The token of a `DemandFile` that is left out: the caller's own.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder_fd = os.open(lease_files.leases_folder() / WANTS_FOLDER, flags)
    except OSError:  # no queue has published a demand yet
        return []
    try:
        return list(_live_demands(folder_fd, exclude))
    finally:
        os.close(folder_fd)


def _live_demands(folder_fd: int, exclude: str) -> Iterator[QueueDemand]:
    for name in shared_folder.list_user_files(folder_fd, max_per_user=_MAX_FILES):
        uid, _, token = name.removesuffix(".json").partition("-")
        if token != exclude and (record := _read_newest_record(folder_fd, name)) is not None:
            yield QueueDemand(int(uid), token, record)


def _read_newest_record(folder_fd: int, name: str) -> DemandRecord | None:
    """Returns the record of a demand file. A file that its owner replaces between the opening and the look at
    its flock would count as one without a process: the new one is read."""
    for _ in range(_MAX_REPLACED):
        opened = lease_files.open_owned_file(folder_fd, name)
        if opened is None:
            return None
        fd, _ = opened
        try:
            if (record := _read_record(fd)) is not None or os.fstat(fd).st_nlink:
                return record
        finally:
            os.close(fd)
    return None


def _read_record(fd: int) -> DemandRecord | None:
    """The record of a demand file; None if its process ended or hangs, or the file is malformed, which harms
    only its owner."""
    try:
        found = os.fstat(fd)
        if (
            lease_files.is_unlocked(fd)
            or found.st_size > _MAX_BYTES
            or time.time() - found.st_mtime > _FRESH_SECONDS
        ):
            return None
        return msgspec.json.decode(os.read(fd, _MAX_BYTES), type=DemandRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _remove_leftovers(root: Path) -> None:
    """Removes this user's files without a process, and the remains of writing one that was killed."""
    for entry in os.scandir(root):
        if f"{os.geteuid()}-" not in entry.name:
            continue
        with suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _LEFTOVER_SECONDS:
                _remove_if_unlocked(Path(entry.path))


def _remove_if_unlocked(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if lease_files.is_unlocked(fd):
            path.unlink()
    finally:
        os.close(fd)
