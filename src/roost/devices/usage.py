"""What each user has used of the cards of a machine, for fair shares between users without root.

::

    <folder of the leases>/usage/<uid>.jsonl    one row for each lease that has ended

A row is written when its owner removes the file of the lease; until then that file tells the same. Each user
writes the own rows only, and of a file only those of its owner count.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from roost.base import durable, regular
from roost.base.errors import Refused
from roost.devices import held
from roost.devices.held import USAGE, Held

HALF_LIFE_SECONDS = 7 * 86400.0
_MOST_BYTES = 2**20
_COUNTED_HALF_LIVES = 20
_JOINED_SECONDS = (3600, 86400, 7 * 86400)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which cards were used. Unix seconds."""

    start: float
    end: float
    cards: tuple[str, ...]
    share: float
    """Of the memory of these cards: 0 to 1."""
    gpu_seconds: float
    """Weighted by that."""
    lease: str = ""
    """Its token and card: a row that was written twice counts once."""


def add(root: Path, lease: Held) -> None:
    """Writes down what a lease of ours has used that has ended.

    Args:
        root: The folder of the leases.
        lease: Which.

    Raises:
        OSError: It cannot be written.
        Refused: Nor can the folder, or somebody else's file is in the place of ours.
    """
    row = _row(lease, lease.ended)
    if row is None:
        return
    with _own(held.make_shared(root / USAGE) / f"{os.geteuid()}.jsonl") as (path, fd):
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        durable.append(fd, b"\n" * torn + msgspec.json.encode(row) + b"\n")
        if size > _MOST_BYTES:
            durable.write(path, _compacted(_rows(path), now=row.end))
            path.chmod(0o644)


@contextmanager
def _own(path: Path) -> Iterator[tuple[Path, int]]:
    """Our file, locked: no other process of ours replaces it meanwhile."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except PermissionError:
            raise _foreign(path) from None
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                raise _foreign(path)
            os.fchmod(fd, 0o644)  # a narrow umask would hide it from the others
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.lexists(path) and os.path.samestat(path.lstat(), os.fstat(fd)):
                yield path, fd
                return
        finally:
            os.close(fd)


def _foreign(path: Path) -> Refused:
    fix = f"have its owner remove it: rm {path}"
    return Refused("somebody else's file is where our use of the cards is written down", where=path, fix=fix)


def decayed(now: float, half_life_seconds: float = HALF_LIFE_SECONDS) -> dict[str, float]:
    """The GPU-seconds of each user until now, weighted by the share of a card's memory; what was used one
    half-life ago counts half. Leases that are held count as far as they have come.

    Args:
        now: Unix seconds.
        half_life_seconds: Of what was used.

    Raises:
        Refused: Somebody keeps everybody else from looking at a card.
    """
    root = held.folder()
    rows = {uid: _rows(path) for uid, path in _ledgers(root / USAGE)}
    for lease in held.all_leases(root):
        row = _row(lease, now if lease.is_live else lease.ended)
        if row is not None:
            rows.setdefault(lease.uid, {}).setdefault(row.lease, row)
    worth = {
        held.name_of(uid): math.fsum(_worth(row, now, half_life_seconds) for row in found.values())
        for uid, found in rows.items()
    }
    return {user: seconds for user, seconds in worth.items() if seconds > 0}


def _worth(row: Row, now: float, half_life: float) -> float:
    """The integral of the use from start to end, each second by its age."""
    end = min(row.end, now)
    if row.start >= end:
        return 0.0
    decay = math.log(2) / half_life
    rate = row.gpu_seconds / (row.end - row.start)
    return rate / decay * math.exp(-(now - end) * decay) * -math.expm1(-(end - row.start) * decay)


def _row(lease: Held, end: float) -> Row | None:
    said = lease.said
    if end <= said.since:
        return None
    return Row(
        start=round(said.since, 3),
        end=round(end, 3),
        cards=(lease.card,),
        share=said.share,
        gpu_seconds=round((end - said.since) * said.share, 3),
        lease=f"{lease.token}/{lease.card}",
    )


def _ledgers(folder: Path) -> Iterator[tuple[int, Path]]:
    """(uid, file) of each that belongs to whom its name says."""
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        owner = entry.stat(follow_symlinks=False).st_uid
        if entry.name == f"{owner}.jsonl" and entry.is_file(follow_symlinks=False):
            yield owner, Path(entry.path)


def _rows(path: Path) -> dict[str, Row]:
    """The rows of a file by their lease, or their line; what a full disk or a kill has torn is no row."""
    try:
        lines = bytes(regular.read(path)).split(b"\n")
    except OSError:  # gone, or far larger than any that we write
        return {}
    found: dict[str, Row] = {}
    for number, line in enumerate(lines):
        try:
            row = msgspec.json.decode(line, type=Row)
        except msgspec.MsgspecError:
            continue
        if row.end > row.start and row.gpu_seconds >= 0:
            found.setdefault(row.lease or f"line {number}", row)
    return found


def _compacted(rows: Mapping[str, Row], *, now: float) -> bytes:
    """The same in half the bytes at most: without what counts no more, and joined by their hours, days or
    weeks, whatever suffices."""
    counted = [row for row in rows.values() if now - row.end < _COUNTED_HALF_LIVES * HALF_LIFE_SECONDS]
    data = b""
    for seconds in _JOINED_SECONDS:
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in _joined(counted, seconds))
        if len(data) <= _MOST_BYTES // 2:
            break
    return data


def _joined(rows: Iterable[Row], seconds: int) -> Iterator[Row]:
    """One row for all that began in the same hour and ended in the same hour."""
    alike: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        alike[int(row.start // seconds), int(row.end // seconds)].append(row)
    for group in alike.values():
        used = math.fsum(row.gpu_seconds for row in group)
        held_seconds = math.fsum((row.end - row.start) * len(row.cards) for row in group)
        yield Row(
            start=min(row.start for row in group),
            end=max(row.end for row in group),
            cards=tuple(sorted({card for row in group for card in row.cards})),
            share=round(used / held_seconds, 6),
            gpu_seconds=round(used, 3),
        )
