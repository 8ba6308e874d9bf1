"""The files of leases, in a folder that all users of a machine share.

::

    <folder>/                     mode 1777, like all folders below it
        <card>/                   its flock: a process takes or reads leases of the card
            <uid>-<token>.json    a lease; its flock: a process of the run that took it still exists
        usage/                    what each user has used (`roost.devices.usage_ledger`)
        wants/                    what each queue waits for (`roost.devices.demand`)

No file is written by two users, so the sticky bit and fs.protected_regular do not interfere. The owner of a
lease is the owner of the file, never what the file says. A lease whose flock is free has ended: its owner
removes the file when taking the next lease, all others ignore it. The file's modification time is the end of
the run.
"""

# Not durable: makes the folders that all users of a machine share; nothing resumes from them

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote

import msgspec

from roost.base.errors import Refused
from roost.base.text.byte_sizes import format_memory
from roost.base.text.terminal_text import escape_control
from roost.base.text.timestamps import format_clock
from roost.devices import shared_folder

VARIABLE = "ROOST_LEASES"
USAGE_FOLDER, WANTS_FOLDER, SAMPLES_FOLDER = "usage", "wants", "samples"
ADMISSION_WAIT_SECONDS = 2.0
"""How long the lock of a card is waited for to take a lease; other processes hold it for a millisecond."""
READ_WAIT_SECONDS = 0.5
"""How long reading the leases of a card, or of all cards together, waits for locks."""
_NO_CARDS = (USAGE_FOLDER, WANTS_FOLDER, SAMPLES_FOLDER)
_LOCK_FOLDER, _TEMPORARY_FOLDER = Path("/run/lock"), Path("/tmp")
_SHARED_MODE = 0o1777
_CREATION_SECONDS = 1.0
_POLL_SECONDS = 0.005
_MAX_BYTES = 1 << 16
_MAX_LEASES = 2048
"""Leases of one user on one card; further ones are ignored."""
_MAX_CARDS = 1024


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a lease's file."""

    pid: int
    """The process that took the lease; it may have passed it on since."""
    start_ticks: int | None
    boot_id: str
    user: str
    mb: Annotated[int, msgspec.Meta(gt=0, le=2**40)] | None
    """Card memory; None: the whole card."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]
    """The share of the card's memory."""
    since: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    """Unix seconds."""
    package: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class CardLease:
    """A lease of one card."""

    card: str
    uid: int
    token: str
    """Identifies it; leases of several cards that were taken by one call have the same token."""
    is_live: bool
    ended: float
    """When the lease ended, if it is not live: Unix seconds."""
    record: LeaseRecord
    blocked: str = ""
    """Why the card's leases cannot be read; empty for a real lease. Such a card counts as leased as a whole,
    by the owner of its folder."""

    @property
    def user(self) -> str:
        """The name of the user who owns the lease."""
        return user_name(self.uid)

    def __str__(self) -> str:
        if self.blocked:
            return self.blocked
        record = self.record
        amount = "the whole card" if record.mb is None else format_memory(record.mb)
        where = f", {escape_control(record.package)}" if record.package else ""
        return f"{self.user}: {amount} since {format_clock(record.since)}{where}"


def user_name(uid: int) -> str:
    """Returns the name of a user, or the number if the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def leases_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder of this machine's leases, the same for every user: the variable ROOST_LEASES, or
    ``roost`` in /run/lock if that is writable for all, else in /tmp."""
    if named := environment.get(VARIABLE):
        return Path(named).absolute()
    for_all = _LOCK_FOLDER.is_dir() and _LOCK_FOLDER.stat().st_mode & _SHARED_MODE == _SHARED_MODE
    return (_LOCK_FOLDER if for_all else _TEMPORARY_FOLDER) / "roost"


def card_folder(root: Path, card: str) -> Path:
    """Returns the folder of one card's leases, by the card's id."""
    name = quote(card, safe="")
    return root / (f"%2E{name[1:]}" if name.startswith(".") else name)


def make_shared_folder(path: Path) -> Path:
    """Creates a folder that every user may write to, if it does not exist; returns its path.

    Raises:
        Refused: The folder cannot be created, or exists with another mode.
    """
    try:
        with suppress(FileExistsError):  # another user may have created it: its mode is checked below
            path.mkdir()
            path.chmod(_SHARED_MODE)
    except OSError as error:
        message = f"the folder of the leases cannot be created: {error.strerror or error}"
        raise Refused(message, where=path, fix=f"name another folder in {VARIABLE}") from error
    _require_shared(path, time.monotonic() + _CREATION_SECONDS)
    return path


def make_samples_folder() -> str:
    """Creates the folder of the machine's samples if it does not exist; returns its path. One that cannot be
    used fails no session: its supervisor finds it unusable, too, and says so."""
    root = leases_folder()
    with suppress(Refused):
        make_shared_folder(make_shared_folder(root) / SAMPLES_FOLDER)
    return str(root / SAMPLES_FOLDER)


def _require_shared(path: Path, deadline: float) -> None:
    while not _is_shared(path):  # a process that has just created it has yet to set its mode
        if time.monotonic() > deadline:
            fix = f"have its owner run: chmod 1777 {path}; or name another folder in {VARIABLE}"
            raise Refused("not every user may write leases to this folder", where=path, fix=fix)
        time.sleep(_POLL_SECONDS)


def _is_shared(path: Path) -> bool:
    found = path.lstat().st_mode
    return stat.S_ISDIR(found) and found & _SHARED_MODE == _SHARED_MODE


@contextmanager
def locked_folder(path: Path, kind: int, *, deadline: float) -> Iterator[int]:
    """Holds the lock of a card's folder; gives a descriptor of the folder.

    Args:
        path: The folder.
        kind: LOCK_EX to take a lease, LOCK_SH to read.
        deadline: How long to wait, in monotonic seconds.

    Raises:
        Refused: Another process held the lock until the deadline.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _lock_timeout(path, fd) from None
                time.sleep(_POLL_SECONDS)
        yield fd
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # a child that another thread has just forked has a copy
        os.close(fd)


def _lock_timeout(path: Path, fd: int) -> Refused:
    pid = _lock_holder(os.fstat(fd).st_ino)
    holder = f"pid {pid} of {_process_user(pid)}" if pid else "a process that is not visible from here"
    fix = f"see what it is (ps -fp {pid}), and end it if it hangs" if pid else "try again"
    return Refused(f"{holder} keeps the leases of this card locked", where=path, fix=fix)


def _lock_holder(inode: int) -> int:
    """The process that holds a flock, according to the kernel; 0 if unknown."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 1234 00:1b:567 0 EOF; a waiting one has an arrow
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return max(0, int(fields[4]))
    return 0


def _process_user(pid: int) -> str:
    try:
        return user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return "an unknown user"


def read_leases(fd: int, card: str) -> list[CardLease]:
    """Returns all leases of a card, the oldest first, including ended ones whose files still exist.

    Args:
        fd: A descriptor of the card's folder, from `locked_folder`: without the lock, probing the flocks of
            the leases could make another process fail to take a free card.
        card: The card's id.
    """
    names = shared_folder.list_user_files(fd, max_per_user=_MAX_LEASES)
    found = [lease for name in names if (lease := _read_lease(fd, name, card)) is not None]
    return sorted(found, key=lambda lease: lease.record.since)


def live_leases(card: str) -> list[CardLease]:
    """Returns the live leases of a card, the oldest first; if they cannot be read, one lease that says so
    (`CardLease.blocked`)."""
    deadline = time.monotonic() + READ_WAIT_SECONDS
    return [
        lease
        for lease in _read_card_leases(card_folder(leases_folder(), card), card, deadline)
        if lease.is_live
    ]


def all_leases(root: Path, *, first: Iterable[str] = ()) -> list[CardLease]:
    """Returns the leases of all cards, as `read_leases` does; for each card whose leases cannot be read, one
    lease that says so (`CardLease.blocked`).

    Args:
        root: The folder of the leases.
        first: Ids of the machine's cards. If there are very many folders, only these and a limited number of
            the others are read.

    Raises:
        OSError: The folder cannot be listed.
    """
    if not root.is_dir():
        return []
    names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    if len(names) > _MAX_CARDS:
        known = {card_folder(root, card).name for card in first}
        names = [*known.intersection(names), *nsmallest(_MAX_CARDS, set(names) - known)]
    cards = [(name, unquote(name)) for name in sorted(names) if name not in _NO_CARDS]
    deadline = time.monotonic() + READ_WAIT_SECONDS
    return [
        lease
        for name, card in cards
        if card_folder(root, card).name == name
        for lease in _read_card_leases(root / name, card, deadline)
    ]


def _read_card_leases(path: Path, card: str, deadline: float) -> list[CardLease]:
    """The leases of a card. What a user does to one card's folder must not block the other cards: problems
    become `CardLease.blocked`."""
    uid = 0
    try:
        uid = path.lstat().st_uid
        _require_shared(path, deadline)
        with locked_folder(path, fcntl.LOCK_SH, deadline=deadline) as fd:
            return read_leases(fd, card)
    except FileNotFoundError:  # no lease of this card was ever taken
        return []
    except OSError as error:
        why = f"its leases cannot be read: {error.strerror or error}"
    except Refused as refused:
        why = refused.message
    record = LeaseRecord(pid=0, start_ticks=None, boot_id="", user="", mb=None, share=0, since=0, package="")
    return [CardLease(card, uid, "", True, 0.0, record, f"{why} ({path})")]


def file_name(uid: int, token: str) -> str:
    """Returns the name of a lease's file."""
    return f"{uid}-{token}.json"


def _read_lease(folder_fd: int, name: str, card: str) -> CardLease | None:
    opened = open_owned_file(folder_fd, name)
    if opened is None:
        return None
    fd, found = opened
    try:
        record = _decode_record(os.read(fd, _MAX_BYTES), found.st_mtime)
        token = name.removesuffix(".json").partition("-")[2]
        return CardLease(card, found.st_uid, token, not is_unlocked(fd), found.st_mtime, record)
    finally:
        os.close(fd)


def open_owned_file(folder_fd: int, name: str) -> tuple[int, os.stat_result] | None:
    """Opens a file of a folder that every user may write to, for reading. Returns None unless it is a plain
    file that belongs to the user in its name (`file_name`)."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder_fd)
    except OSError:  # removed meanwhile, or not a file of roost
        return None
    found = os.fstat(fd)
    token = name.removesuffix(".json").partition("-")[2]
    if stat.S_ISREG(found.st_mode) and name == file_name(found.st_uid, token):
        return fd, found
    os.close(fd)
    return None


def is_unlocked(fd: int) -> bool:
    """Whether no process holds the flock of a file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _decode_record(data: bytes, written: float) -> LeaseRecord:
    """The content of a lease's file. What cannot be decoded, because a newer roost has written it, counts as
    the whole card, the safe assumption."""
    try:
        return msgspec.json.decode(data, type=LeaseRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return LeaseRecord(
            pid=0, start_ticks=None, boot_id="", user="", mb=None, share=1, since=written, package=""
        )
