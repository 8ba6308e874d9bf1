"""The use of a machine's cards by each user, for fair share between users without root.

::

    <folder of the leases>/usage/<uid>.jsonl    one row for each lease that has ended

A row is written when its owner removes the file of the lease; until then that file has the same information.
Users write only their own rows, and a file counts only if it belongs to the user in its name.
"""

# Not durable: opens the ledger that `durable.append` appends to, never through a link

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import Refused
from roost.devices import lease_files, shared_folder
from roost.devices.lease_files import USAGE_FOLDER, CardLease

HALF_LIFE_SECONDS = 7 * 86400.0
_COMPACT_BYTES = 2**20
_MAX_BYTES = 4 * _COMPACT_BYTES
"""A larger ledger is not read: in memory the rows take ten times as much, in the daemon of each user."""
_COUNTED_HALF_LIVES = 20
_LEDGER_NAME = re.compile(r"([0-9]{1,10})\.jsonl")
_MAX_TIME, _MAX_CARDS = 1e12, 4096
_MERGE_SECONDS = (3600, 86400, 7 * 86400)


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The use of cards over a time. Times are Unix seconds."""

    start: float
    end: float
    cards: tuple[str, ...]
    share: float
    """The share of the cards' memory, 0 to 1."""
    gpu_seconds: float
    """Weighted by ``share``."""
    lease: str = ""
    """Token and card of the lease: a row that was written twice counts once."""


def record_usage(root: Path, lease: CardLease) -> None:
    """Appends the use by an ended lease of this user to the user's ledger.

    Args:
        root: The folder of the leases.
        lease: The ended lease.

    Raises:
        OSError: The ledger cannot be written.
        Refused: The folder cannot be used, or a file of another user has the ledger's name.
    """
    row = _row(lease, lease.ended)
    if row is None:
        return
    with _own_file(lease_files.make_shared_folder(root / USAGE_FOLDER) / f"{os.geteuid()}.jsonl") as (
        path,
        fd,
    ):
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        durable.append(fd, b"\n" * torn + msgspec.json.encode(row) + b"\n")
        if size > _COMPACT_BYTES:
            durable.write(path, _compacted(_rows(path), now=row.end))
            path.chmod(0o644)


@contextmanager
def _own_file(path: Path) -> Iterator[tuple[Path, int]]:
    """This user's ledger, locked, so that no other process replaces it meanwhile."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except PermissionError:
            raise _foreign_file_error(path) from None
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                raise _foreign_file_error(path)
            os.fchmod(fd, 0o644)  # a narrow umask would hide it from the others
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.lexists(path) and os.path.samestat(path.lstat(), os.fstat(fd)):
                yield path, fd
                return
        finally:
            os.close(fd)


def _foreign_file_error(path: Path) -> Refused:
    fix = f"have its owner rename it: mv {path} {path}.old"
    return Refused("a file of another user has the name of your ledger of card usage", where=path, fix=fix)


def decayed_usage(now: float, *, leases: Iterable[CardLease]) -> dict[str, float]:
    """Returns the decayed GPU-seconds of each user until now, weighted by the share of a card's memory: use
    `HALF_LIFE_SECONDS` ago counts half. Live leases count until now.

    Args:
        now: Unix seconds.
        leases: The leases of all cards, including ended ones. They must be read before this call: a lease
            that is removed after that is in the ledger by then.

    Raises:
        OSError: The folder of the leases cannot be read.
    """
    ledgers = _refreshed_ledgers(lease_files.leases_folder() / USAGE_FOLDER)
    worth = {uid: ledger.worth(now) for uid, ledger in ledgers.items()}
    for lease in leases:
        row = _row(lease, now if lease.is_live else lease.ended)
        if row is not None and not (lease.uid in ledgers and row.lease in ledgers[lease.uid].rows):
            worth[lease.uid] = worth.get(lease.uid, 0.0) + _decayed_seconds(row, now)
    return {lease_files.user_name(uid): seconds for uid, seconds in worth.items() if seconds > 0}


def rows_since(begin: float) -> list[tuple[str, UsageRow]]:
    """Returns the user and the row of each use of cards that ended after ``begin`` (Unix seconds). Old rows
    are merged ones."""
    ledgers = _refreshed_ledgers(lease_files.leases_folder() / USAGE_FOLDER)
    return [
        (lease_files.user_name(uid), row)
        for uid, ledger in ledgers.items()
        for row in ledger.rows.values()
        if row.end > begin
    ]


class _Ledger:
    """The rows of one file and their decayed sum, both incremental: `refresh` reads only added rows, and
    `worth` adds only rows that have ended since.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] = (0, 0, 0)
        """Inode, size and modification time at the last reading."""
        self._end = 0
        """The offset after the last whole line that was read."""
        self.rows: dict[str, UsageRow] = {}
        self._forget_worth()

    def _forget_worth(self) -> None:
        self._at, self._worth = -math.inf, 0.0
        self._unweighed = list(self.rows.values())

    def refresh(self) -> None:
        """Reads the added rows; all rows, if the file was replaced or changed otherwise than by appending."""
        try:
            found = self._path.lstat()
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen == self._seen:
                return
            if found.st_ino != self._seen[0] or found.st_size <= self._seen[1]:
                self._end, self.rows = 0, {}
                self._forget_worth()
            data = _read_from(self._path, self._end)
        except OSError:  # removed, or far larger than any that roost writes
            self._seen, self._end, self.rows = (0, 0, 0), 0, {}
            self._forget_worth()
            return
        self._seen = seen
        whole = data[: data.rfind(b"\n") + 1]
        for name, row in _parsed(whole, self._end):
            if name not in self.rows:
                self.rows[name] = row
                self._unweighed.append(row)
        self._end += len(whole)

    def worth(self, now: float) -> float:
        """Returns the decayed GPU-seconds of all rows. The cost is linear in the rows that had not ended at
        the last call."""
        if now < self._at:
            self._forget_worth()
        self._worth *= 0.5 ** ((now - self._at) / HALF_LIFE_SECONDS)
        self._at = now
        ended = [row for row in self._unweighed if row.end <= now]
        self._worth = math.fsum([self._worth, *(_decayed_seconds(row, now) for row in ended)])
        if ended:
            self._unweighed = [row for row in self._unweighed if row.end > now]
        return self._worth + math.fsum(_decayed_seconds(row, now) for row in self._unweighed)


_ledgers: dict[Path, _Ledger] = {}
"""The ledgers that this process has read, by path."""


def _refreshed_ledgers(folder: Path) -> dict[int, _Ledger]:
    found = {}
    for uid, path in _ledger_files(folder):
        found[uid] = _ledgers.setdefault(path, _Ledger(path))
        found[uid].refresh()
    for path in _ledgers.keys() - {folder / f"{uid}.jsonl" for uid in found}:
        del _ledgers[path]
    return found


def _read_from(path: Path, start: int) -> bytes:
    """The bytes of a plain file from an offset on."""
    with open(safe_read.open_fd(path), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > _MAX_BYTES:
            raise OSError(errno.EFBIG, "is far larger than any ledger", os.fspath(path))
        return os.pread(file.fileno(), _MAX_BYTES, start)


def _decayed_seconds(row: UsageRow, now: float) -> float:
    """The integral of the use from start to end, each second weighted by its age."""
    end = min(row.end, now)
    if row.start >= end:
        return 0.0
    decay = math.log(2) / HALF_LIFE_SECONDS
    rate = row.gpu_seconds / (row.end - row.start)
    return rate / decay * math.exp(-(now - end) * decay) * -math.expm1(-(end - row.start) * decay)


def _row(lease: CardLease, end: float) -> UsageRow | None:
    record = lease.record
    if end <= record.since:
        return None
    return UsageRow(
        start=round(record.since, 3),
        end=round(end, 3),
        cards=(lease.card,),
        share=record.share,
        gpu_seconds=round((end - record.since) * record.share, 3),
        lease=f"{lease.token}/{lease.card}",
    )


def _ledger_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """User and file of each ledger that belongs to the user in its name."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no lease has ended yet, or the folder is not readable
        return
    try:
        names = shared_folder.list_user_files(fd, max_per_user=1, pattern=_LEDGER_NAME)
    finally:
        os.close(fd)
    for path in (folder / name for name in names):
        with suppress(OSError):  # removed meanwhile
            found = path.lstat()
            if path.name == f"{found.st_uid}.jsonl" and stat.S_ISREG(found.st_mode):
                yield found.st_uid, path


def _rows(path: Path) -> dict[str, UsageRow]:
    """All rows of a file, by lease, or by offset for merged rows."""
    found: dict[str, UsageRow] = {}
    for name, row in _parsed(_read_from(path, 0), 0):
        found.setdefault(name, row)
    return found


def _parsed(data: bytes, start: int) -> Iterator[tuple[str, UsageRow]]:
    """The rows of these bytes; lines that a full disk or a kill has torn are left out."""
    for line in data.split(b"\n"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            row = msgspec.json.decode(line, type=UsageRow)
            if _is_plausible(row):
                yield row.lease or f"at {start}", row
        start += len(line) + 1


def _is_plausible(row: UsageRow) -> bool:
    """Whether a row has possible values: otherwise one user's row could make the sums of all users infinite
    or NaN."""
    seconds = row.end - row.start
    return 0 <= row.start < row.end <= _MAX_TIME and 0 <= row.gpu_seconds <= seconds * _MAX_CARDS


def _compacted(rows: Mapping[str, UsageRow], *, now: float) -> bytes:
    """The rows in at most half the bytes: without those that have decayed, and merged by hour, day or week,
    whichever suffices."""
    counted = [row for row in rows.values() if now - row.end < _COUNTED_HALF_LIVES * HALF_LIFE_SECONDS]
    data = b""
    for seconds in _MERGE_SECONDS:
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in _merged(counted, seconds))
        if len(data) <= _COMPACT_BYTES // 2:
            break
    return data


def _merged(rows: Iterable[UsageRow], seconds: int) -> Iterator[UsageRow]:
    """One row for all rows that began in one period and ended in one period of ``seconds``."""
    alike: dict[tuple[int, int], list[UsageRow]] = defaultdict(list)
    for row in rows:
        alike[int(row.start // seconds), int(row.end // seconds)].append(row)
    for group in alike.values():
        used = math.fsum(row.gpu_seconds for row in group)
        held_seconds = math.fsum((row.end - row.start) * len(row.cards) for row in group)
        yield UsageRow(
            start=min(row.start for row in group),
            end=max(row.end for row in group),
            cards=tuple(sorted({card for row in group for card in row.cards})),
            share=round(used / held_seconds, 6),
            gpu_seconds=round(used, 3),
        )
