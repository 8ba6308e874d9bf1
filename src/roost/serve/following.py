"""What a run prints and what happens in the lab, from a cursor on: a page at a time, or as it comes."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from roost.base import regular
from roost.base.errors import NotFound
from roost.lab import ticket
from roost.lab.output import output_of
from roost.lab.remembered import Event as Remembered
from roost.lab.task import ENDED
from roost.operations import lab
from roost.operations.output import Output as Reader
from roost.package.package import Package
from roost.serve.refusal import Answered
from roost.serve.route import Asked, Happened

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=4095)]
MOST_BYTES = 1 << 20
_MOST_EVENTS = 1000
_MOST_PIECES = 16
"""At a time, of 64 KiB: a long output is not held whole."""
_QUIET_SECONDS = 1.0


class Log(Asked, frozen=True, kw_only=True):
    """A part of what a run printed."""

    run: RunId
    offset: Offset = 0
    """Bytes from the beginning."""
    limit: Annotated[int, Meta(ge=1, le=MOST_BYTES)] = 1 << 16
    """Bytes."""
    rank: Rank = 0


class Page(msgspec.Struct, frozen=True):
    """That part."""

    offset: int
    next: int
    """The offset to ask for then."""
    size: int
    """Bytes in all, so far."""
    text: str
    """With what is no UTF-8 replaced."""


class FollowLog(Asked, frozen=True, kw_only=True):
    """What a run prints from now on."""

    run: RunId
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")] = "0"
    """Of the last piece that came; or an offset in bytes."""
    rank: Rank = 0


class Events(Asked, frozen=True, kw_only=True):
    """What happened in the lab."""

    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")] = "0"
    """Of the last event that came."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened."""

    cursor: str
    at: float
    task: str | None
    kind: str
    text: str


def page(package: Package, asked: Log) -> Page:
    """A part of the output, without what a hole in its middle has left out.

    Raises:
        NotFound: No such rank has printed.
    """
    path = _output(package, asked.rank)
    try:
        with open(regular.open_fd(path, follow_link=False), "rb", buffering=0) as file:
            size = file.seek(0, 2)
            file.seek(min(asked.offset, size))
            data = file.read(asked.limit) or b""
    except FileNotFoundError:
        size, data = 0, b""
    offset = min(asked.offset, size)
    return Page(offset, offset + len(data), size, data.decode("utf-8", "replace"))


def is_over(package: Package) -> bool:
    """Whether no session of a run runs; of one that never began, whether no task of it may begin one."""
    if sessions := package.sessions():
        return sessions[-1].state not in ("starting", "running")
    told = ticket.read_all(package.path)
    return bool(told) and all(one.task.state in ENDED for one in told)


class Output:
    """The output of a run, followed; a piece's cursor is the offset after it.

    Args:
        package: The run's folder.
        asked: From where on.
    """

    def __init__(self, package: Path, asked: FollowLog) -> None:
        self._package = Package.open(package)
        self._reader = Reader(_output(self._package, asked.rank), offset=_offset(asked.cursor))
        self._quiet_since = time.monotonic()

    @property
    def has_ended(self) -> bool:
        """Whether no session runs, and a moment has passed in which another one may have begun."""
        if time.monotonic() - self._quiet_since < _QUIET_SECONDS:
            return False
        return is_over(self._package)

    def new(self) -> Sequence[Happened]:
        found = []
        for piece in itertools.islice(self._reader.new(), _MOST_PIECES):
            data = {"text": piece.decode("utf-8", "replace"), "bytes": base64.b64encode(piece).decode()}
            found.append(Happened(str(self._reader.offset), "output", data))
            self._quiet_since = time.monotonic()
        return found

    def close(self) -> None:
        self._reader.close()


class Happenings:
    """The lab's events, followed.

    Args:
        asked: From where on.
    """

    has_ended = False

    def __init__(self, asked: Events) -> None:
        self._after = int(asked.cursor)
        self._store = lab.opened()

    def new(self) -> Sequence[Happened]:
        found = self._store.events(after=self._after, most=_MOST_EVENTS)
        if found:
            self._after = found[-1].seq
        return [Happened(str(one.seq), "event", _event(one)) for one in found]

    def close(self) -> None:
        with suppress(Exception):
            self._store.close()


def events(asked: Events) -> list[Event]:
    """What happened after an event, at most a thousand of them."""
    with lab.opened() as store:
        return [_event(one) for one in store.events(after=int(asked.cursor), most=_MOST_EVENTS)]


def _event(one: Remembered) -> Event:
    return Event(str(one.seq), one.at, one.task, one.kind, one.text)


def _output(package: Package, rank: int) -> Path:
    path = Path(output_of(str(package.output), rank))
    if path.is_symlink():
        raise Answered(403, "no_rights", "the log is a link, and none is followed")
    if rank and not path.exists():
        raise NotFound("no such rank has printed here", received=rank)
    return path


def _offset(cursor: str) -> int:
    found = int(cursor)
    if found > 2**62:
        raise Answered(422, "invalid", "is no offset", field="cursor")
    return found
