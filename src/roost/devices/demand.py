"""What waits for cards in the other queues of a machine, so that a card that becomes free goes to whoever has
had least, and not to whoever is quickest.

::

    <folder of the leases>/wants/<uid>-<token>.json    what one queue waits for; its flock: somebody lives

It is replaced whole, by its owner alone. Whose it is, the system tells; what it says is bounded, and believed
no further than `roost.lab.scheduling.other_queues` does. A file whose flock is free is nobody's: its owner
removes it some
time later, all others pass over it.
"""

# Not durable: tells others what is waited for, while it is waited for; nothing resumes from it

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

MAX_DEMANDS = 64
"""Wants in one file: what comes after them is not waited for by anybody else yet."""
MAX_CARDS = 4096
_MAX_BYTES = 1 << 19
_MAX_FILES = 32
"""Of one user; more are not looked at."""
_FRESH_SECONDS = 60.0
"""Who has not looked for so long hangs, or was stopped."""
_LEFTOVER_SECONDS = 60.0
"""After which a file is left over and not about to be told."""

_Name = Annotated[str, Meta(max_length=256)]


class CardDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A task that would start now if there were room."""

    cards: Annotated[int, Meta(ge=1, le=MAX_CARDS)]
    mb: Annotated[int, Meta(ge=1, le=2**40)] | None = None
    """Of each; None: whole cards."""
    least_mb: Annotated[int, Meta(ge=0, le=2**40)] = 0
    """That a whole card must have."""
    seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    """That it takes at most, or probably."""
    since: Annotated[float, Meta(ge=0, le=1e12)]
    """Unix seconds."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    """Among those of its user."""
    opportunistic: bool = False


class DemandRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a file."""

    wants: Annotated[tuple[CardDemand, ...], Meta(max_length=MAX_DEMANDS)]
    """In the order in which they are to start."""
    closed: Annotated[tuple[_Name, ...], Meta(max_length=MAX_CARDS)] = ()
    """Cards that this queue does not use."""
    ends: Annotated[dict[_Name, Annotated[float, Meta(ge=0, le=1e12)]], Meta(max_length=MAX_CARDS)] = {}
    """When those of its tasks end that hold leases, by the task, as far as known: unix seconds."""


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """A file of somebody who lives."""

    uid: int
    token: str
    told: DemandRecord


class DemandFile:
    """What we want, for all others to see as long as we live: nothing before `tell`, nothing after
    `withdraw`."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._fd: int | None = None
        self._told: DemandRecord | None = None
        self._path = Path()

    def tell(self, told: DemandRecord) -> None:
        """Puts it in the place of what we have told before. To be called again and again, also if it is the
        same: what was not for a while counts for nobody.

        Raises:
            OSError: It cannot be written.
            Refused: As `held.make_shared`.
        """
        if self._fd is not None and told == self._told:
            os.utime(self._fd)
            return
        root = lease_files.make_shared_folder(lease_files.make_shared_folder(lease_files.leases_folder()) / WANTS_FOLDER)
        if self._fd is None:
            _remove_leftovers(root)
            self._path = root / lease_files.file_name(os.geteuid(), self.token)
        staging = durable.staging_name(self._path)
        fd = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o644)  # a narrow umask would hide it from the others
            durable.append(fd, msgspec.json.encode(told))
            staging.rename(self._path)
        except BaseException:
            durable.discard(staging)
            os.close(fd)
            raise
        self._close()
        self._fd, self._told = fd, told

    def withdraw(self) -> None:
        """We want nothing any more."""
        if self._fd is not None:
            with suppress(OSError):  # what stays is nobody's, once it is closed
                self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = self._told = None


def read_demands(*, but: str = "") -> list[QueueDemand]:
    """What others want, in the order of their users.

    Args:
        but: The token of a `DemandFile` that is left out: ours.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder_fd = os.open(lease_files.leases_folder() / WANTS_FOLDER, flags)
    except OSError:  # nobody has wanted anything yet
        return []
    try:
        return list(_live_demands(folder_fd, but))
    finally:
        os.close(folder_fd)


def _live_demands(folder_fd: int, but: str) -> Iterator[QueueDemand]:
    for name in shared_folder.list_user_files(folder_fd, most=_MAX_FILES):
        uid, _, token = name.removesuffix(".json").partition("-")
        if token == but or (opened := lease_files.open_owned_file(folder_fd, name)) is None:
            continue
        if (told := _read_record(*opened)) is not None:
            yield QueueDemand(int(uid), token, told)


def _read_record(fd: int, found: os.stat_result) -> DemandRecord | None:
    """None of one that is dead or hangs, or that is not what it seems: nobody is wronged by what he has not
    told. Closes the descriptor."""
    try:
        if (
            lease_files.is_unlocked(fd)
            or found.st_size > _MAX_BYTES
            or time.time() - found.st_mtime > _FRESH_SECONDS
        ):
            return None
        return msgspec.json.decode(os.read(fd, _MAX_BYTES), type=DemandRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    finally:
        os.close(fd)


def _remove_leftovers(root: Path) -> None:
    """Files of ours that nobody holds any more, and what a kill has left of writing one."""
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
