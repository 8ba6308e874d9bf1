"""Who holds which card: the folder that all users of a machine share, and what is in it.

::

    <folder>/                     1777, as all below it
        <card>/                   its flock: somebody is being admitted to the card, or looks at it
            <uid>-<token>.json    a lease; its flock: something of the run that took it lives
        usage/                    what each user has used (`devices.usage`)
        wants/                    what each queue waits for (`devices.wants`)

No file is shared for writing, so the sticky bit and fs.protected_regular are in nobody's way. Whose a lease
is, the system tells and not the file. A file whose flock is free is nobody's any more: its owner removes it
at the next admission, all others pass over it. When it was last written is when its run ended.
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
USAGE_FOLDER, WANTS_FOLDER = "usage", "wants"
ADMISSION_WAIT_SECONDS = 2.0
"""How long an admission is waited for; it takes a millisecond."""
READ_WAIT_SECONDS = 0.5
"""How long a look at a card, or at all of them together, waits for admissions."""
_LOCK_FOLDER, _TEMPORARY_FOLDER = Path("/run/lock"), Path("/tmp")
_SHARED_MODE = 0o1777
_CREATION_SECONDS = 1.0
_POLL_SECONDS = 0.005
_MAX_BYTES = 1 << 16
_MAX_LEASES = 2048
"""Of one user on one card: more of his count for nobody."""
_MAX_CARDS = 1024


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the file of a lease."""

    pid: int
    """Of who took it; it may have handed it on since."""
    start_ticks: int | None
    boot_id: str
    user: str
    mb: Annotated[int, msgspec.Meta(gt=0, le=2**40)] | None
    """None: the whole card."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]
    """Of the card's memory."""
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
    """Names it; the leases that one call took of several cards have the same."""
    is_live: bool
    ended: float
    """When it ended, if it is not live: unix seconds."""
    said: LeaseRecord
    blocked: str = ""
    """Why nobody can look at the card: then it is nobody's, and counts as held by whose its folder is."""

    @property
    def user(self) -> str:
        """Whose it is."""
        return user_name(self.uid)

    def __str__(self) -> str:
        if self.blocked:
            return self.blocked
        said = self.said
        what = "the whole card" if said.mb is None else format_memory(said.mb)
        where = f", {escape_control(said.package)}" if said.package else ""
        return f"{self.user}: {what} since {format_clock(said.since)}{where}"


def user_name(uid: int) -> str:
    """What the system calls a user; the number of one that it does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def leases_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this machine keeps its leases: the same for each of its users, whatever they may write to."""
    if named := environment.get(VARIABLE):
        return Path(named).absolute()
    for_all = _LOCK_FOLDER.is_dir() and _LOCK_FOLDER.stat().st_mode & _SHARED_MODE == _SHARED_MODE
    return (_LOCK_FOLDER if for_all else _TEMPORARY_FOLDER) / "roost"


def card_folder(root: Path, card: str) -> Path:
    """That of one card, by its id."""
    name = quote(card, safe="")
    return root / (f"%2E{name[1:]}" if name.startswith(".") else name)


def make_shared_folder(path: Path) -> Path:
    """Makes a folder that everybody may write to, if there is none; gives its path.

    Raises:
        Refused: It cannot be made, or stands with other rights.
    """
    try:
        with suppress(FileExistsError):  # whoever has made it, its rights are looked at below
            path.mkdir()
            path.chmod(_SHARED_MODE)
    except OSError as error:
        what = f"the folder of the leases cannot be made: {error.strerror or error}"
        raise Refused(what, where=path, fix=f"name another folder in {VARIABLE}") from error
    _require_shared(path, time.monotonic() + _CREATION_SECONDS)
    return path


def _require_shared(path: Path, deadline: float) -> None:
    while not _is_shared(path):  # whoever makes it now has yet to give it its rights
        if time.monotonic() > deadline:
            fix = f"have its owner type: chmod 1777 {path}; or name another folder in {VARIABLE}"
            raise Refused("not every user may keep leases in this folder", where=path, fix=fix)
        time.sleep(_POLL_SECONDS)


def _is_shared(path: Path) -> bool:
    found = path.lstat().st_mode
    return stat.S_ISDIR(found) and found & _SHARED_MODE == _SHARED_MODE


@contextmanager
def locked_folder(path: Path, kind: int, *, deadline: float) -> Iterator[int]:
    """Holds the lock of a card's folder; gives a descriptor of it.

    Args:
        path: The folder.
        kind: LOCK_EX to admit somebody, LOCK_SH to look.
        deadline: How long to wait, in monotonic seconds.

    Raises:
        Refused: Somebody else held it all the time.
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
    who = f"pid {pid} of {_process_user(pid)}" if pid else "a process that cannot be seen from here"
    fix = f"see what it is (ps -fp {pid}), and end it if it hangs" if pid else "try again"
    return Refused(f"{who} keeps everybody else from the leases of this card", where=path, fix=fix)


def _lock_holder(inode: int) -> int:
    """Who holds a flock, as the kernel tells; 0 where it does not."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 1234 00:1b:567 0 EOF; one that waits has an arrow
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
    """All leases of a card, those that have ended and were not removed yet among them, the oldest first.

    Args:
        fd: Its folder's, `locked_folder`: else the look itself could keep somebody from taking what is free.
        card: Its id.
    """
    names = shared_folder.list_user_files(fd, most=_MAX_LEASES)
    found = [held for name in names if (held := _read_lease(fd, name, card)) is not None]
    return sorted(found, key=lambda held: held.said.since)


def live_leases(card: str) -> list[CardLease]:
    """The leases of a card that are held, the oldest first; one that says so where nobody can look."""
    deadline = time.monotonic() + READ_WAIT_SECONDS
    return [held for held in _read_card_leases(card_folder(leases_folder(), card), card, deadline) if held.is_live]


def all_leases(root: Path, *, first: Iterable[str] = ()) -> list[CardLease]:
    """Those of all cards, as `read_leases` gives them; for each card at which nobody can look one that says so.

    Args:
        root: The folder of the leases.
        first: Ids of the cards that are there. Where somebody has made very many folders, these come before
            what nobody knows, and not all the rest is looked at.

    Raises:
        OSError: The folder cannot be read.
    """
    if not root.is_dir():
        return []
    names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    if len(names) > _MAX_CARDS:
        known = {card_folder(root, card).name for card in first}
        names = [*known.intersection(names), *nsmallest(_MAX_CARDS, set(names) - known)]
    cards = [(name, unquote(name)) for name in sorted(names) if name not in (USAGE_FOLDER, WANTS_FOLDER)]
    deadline = time.monotonic() + READ_WAIT_SECONDS
    return [
        held
        for name, card in cards
        if card_folder(root, card).name == name
        for held in _read_card_leases(root / name, card, deadline)
    ]


def _read_card_leases(path: Path, card: str, deadline: float) -> list[CardLease]:
    """What one user does to a folder must not keep the others from the other cards."""
    uid = 0
    try:
        uid = path.lstat().st_uid
        _require_shared(path, deadline)
        with locked_folder(path, fcntl.LOCK_SH, deadline=deadline) as fd:
            return read_leases(fd, card)
    except FileNotFoundError:  # nobody has used this card yet
        return []
    except OSError as error:
        why = f"its leases cannot be read: {error.strerror or error}"
    except Refused as refused:
        why = refused.message
    said = LeaseRecord(pid=0, start_ticks=None, boot_id="", user="", mb=None, share=0, since=0, package="")
    return [CardLease(card, uid, "", True, 0.0, said, f"{why} ({path})")]


def file_name(uid: int, token: str) -> str:
    """That of a lease."""
    return f"{uid}-{token}.json"


def _read_lease(folder_fd: int, name: str, card: str) -> CardLease | None:
    opened = open_owned_file(folder_fd, name)
    if opened is None:
        return None
    fd, found = opened
    try:
        said = _decode_record(os.read(fd, _MAX_BYTES), found.st_mtime)
        token = name.removesuffix(".json").partition("-")[2]
        return CardLease(card, found.st_uid, token, not is_unlocked(fd), found.st_mtime, said)
    finally:
        os.close(fd)


def open_owned_file(folder_fd: int, name: str) -> tuple[int, os.stat_result] | None:
    """A descriptor for reading a file that anybody may have put there; None if it is no plain file, or not of
    the user whom its name says (`file_name`)."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder_fd)
    except OSError:  # gone, or nothing that we have put there
        return None
    found = os.fstat(fd)
    token = name.removesuffix(".json").partition("-")[2]
    if stat.S_ISREG(found.st_mode) and name == file_name(found.st_uid, token):
        return fd, found
    os.close(fd)
    return None


def is_unlocked(fd: int) -> bool:
    """Whether nobody holds the flock of a file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _decode_record(data: bytes, written: float) -> LeaseRecord:
    """What cannot be read, because a newer roost has written it, is the whole card: nobody is wronged."""
    try:
        return msgspec.json.decode(data, type=LeaseRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return LeaseRecord(pid=0, start_ticks=None, boot_id="", user="", mb=None, share=1, since=written, package="")
