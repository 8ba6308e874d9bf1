"""What a run prints and what happens in the lab, from a cursor on: a page at a time, or as it comes."""

from __future__ import annotations

import itertools
import stat
import time
from codecs import utf_8_decode
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base.errors import NotFound
from roost.lab.background import daemon_presence
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.queue_store import QueueStore
from roost.operations import lab
from roost.operations.reading.output_reader import OutputReader as Reader
from roost.operations.responses import Event, LogPage, LogPiece, StreamEvent
from roost.package.package import PackageFolder
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import RequestParameters
from roost.serve.routes.stream_end import RunEndDetector, is_run_over
from roost.supervisor.output.output_file import rank_output_path

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=4095)]
MAX_BYTES = 1 << 20
_MAX_EVENTS = 1000
_MAX_PIECES = 1
"""At a time, of 64 KiB: as many as follow and do not read, hold no more than that each."""
_MAX_CHARACTER_BYTES = 4
"""Bytes, of UTF-8."""


class ReadLog(RequestParameters, frozen=True, kw_only=True):
    """A part of what a run printed."""

    run: RunId
    offset: Offset = 0
    """Bytes from the beginning."""
    limit: Annotated[int, Meta(ge=_MAX_CHARACTER_BYTES, le=MAX_BYTES)] = 1 << 16
    """Bytes; so many that any character fits in."""
    rank: Rank = 0


class FollowLog(RequestParameters, frozen=True, kw_only=True):
    """What a run prints from now on."""

    run: RunId
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")] = "0"
    """Of the last piece that came; or an offset in bytes."""
    rank: Rank = 0


class ReadEvents(RequestParameters, frozen=True, kw_only=True):
    """What happened in the lab."""

    cursor: Annotated[str, Meta(pattern=r"^([0-9a-f]{8}-)?[0-9]{1,18}$")] = "0"
    """Of the last event that came; where the queue was made anew since, all of its events come."""


def read_log(package: PackageFolder, parameters: ReadLog) -> LogPage:
    """A part of the output, in whole characters; where some was too long to be kept, a line says so.

    Raises:
        NotFound: No such rank has printed.
    """
    with Reader(
        _output_path(package, parameters.rank), offset=parameters.offset, most=parameters.limit
    ) as reader:
        raw = next(reader.new(), b"")
        size = reader.size
    at_end = reader.offset >= size
    # What follows the beginning of a character may complete it, unless a hole follows, or nothing ever will.
    text, used = utf_8_decode(raw, "replace", False)
    if used < len(raw) and (is_run_over(package) if at_end else not used):
        text, used = raw.decode("utf-8", "replace"), len(raw)
    after = min(reader.offset, size) - (len(raw) - used)
    return LogPage(min(parameters.offset, size), after, size, text)


class LogStream:
    """The output of a run, followed, in whole characters; a piece's cursor is the offset after it.

    Args:
        package: The run's folder.
        parameters: From where on.
    """

    def __init__(self, package: Path, parameters: FollowLog) -> None:
        self._package = PackageFolder.open(package)
        self._path = _output_path(self._package, parameters.rank)
        self._reader = Reader(self._path, offset=_parse_offset(parameters.cursor))
        self._partial = b""
        """The beginning of a character, of which the rest has not come yet."""
        self._end = RunEndDetector(self._package)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self._end.has_ended

    def read_new(self) -> Sequence[StreamEvent[LogPiece]]:
        """What was printed since, in whole characters; empty if there is nothing."""
        found = []
        for piece in itertools.islice(self._reader.new(), _MAX_PIECES):
            raw = self._partial + piece
            text, used = utf_8_decode(raw, "replace", False)
            self._partial = raw[used:]
            if used:
                found.append(self._piece(text, raw[:used]))
        if found:
            return found
        is_replaced = self._reader.was_replaced()
        if self._partial and (is_replaced or self.has_ended):
            raw, self._partial = self._partial, b""
            return [self._piece(raw.decode("utf-8", "replace"), raw)]
        if is_replaced:
            self._reader.close()
            self._reader = Reader(self._path, offset=self._next_output_offset())
        return ()

    def close(self) -> None:
        self._reader.close()

    def _piece(self, text: str, raw: bytes) -> StreamEvent[LogPiece]:
        self._end.data_arrived()
        return StreamEvent(str(self._reader.offset - len(self._partial)), "output", LogPiece(text, raw))

    def _next_output_offset(self) -> int:
        """Where to go on in a file that was written anew, shorter, at the end of a session: after that, where
        the next one begins."""
        size = self._path.stat().st_size
        newest = self._package.sessions()[-1]
        if newest.state not in ("starting", "running"):
            return size
        return int(newest.request.get("output_offsets", {}).get(self._path.name, size))


class LabEventStream:
    """The lab's events, followed.

    Args:
        parameters: From where on.
    """

    has_ended = False

    def __init__(self, parameters: ReadEvents) -> None:
        self._open()
        self._after = _resolve_cursor(self._store, parameters.cursor)

    def read_new(self) -> Sequence[StreamEvent[Event]]:
        """What has happened since; one event, ``anew``, where the cursor was of another queue."""
        if self._after is None:
            self._after = 0
            return [StreamEvent(f"{self._queue}-0", "event", _new_queue_event(self._queue))]
        found = self._store.events(after=self._after, limit=_MAX_EVENTS)
        if found:
            self._after = found[-1].seq
        elif daemon_presence.identity(self._store.path) not in (self._file, ""):
            cursor = f"{self._queue}-{self._after}"
            self._store.close()
            self._open()
            self._after = _resolve_cursor(self._store, cursor)
        return [
            StreamEvent(one.cursor, "event", one) for one in (_to_event(self._queue, each) for each in found)
        ]

    def close(self) -> None:
        self._store.close()

    def _open(self) -> None:
        self._store = lab.open_queue()
        self._file, self._queue = daemon_presence.identity(self._store.path), self._store.identity()


def read_events(parameters: ReadEvents) -> list[Event]:
    """What happened after an event, at most a thousand of them."""
    with lab.open_queue() as store:
        queue = store.identity()
        after = _resolve_cursor(store, parameters.cursor)
        found = [_to_event(queue, one) for one in store.events(after=after or 0, limit=_MAX_EVENTS)]
        return found if after is not None else [_new_queue_event(queue), *found[: _MAX_EVENTS - 1]]


def _resolve_cursor(store: QueueStore, cursor: str) -> int | None:
    """The number of the event that a cursor means; None if it is of another queue."""
    of, _, number = cursor.rpartition("-")
    seq = int(number)
    is_there = not seq or bool(store.events(after=seq - 1, limit=1))
    return seq if is_there and of in (store.identity(), "") else None


def _new_queue_event(queue: str) -> Event:
    text = "this is another queue than that of the cursor, made anew: its events follow from the beginning on"
    return Event(f"{queue}-0", time.time(), None, "anew", text)


def _to_event(queue: str, one: QueueEvent) -> Event:
    return Event(f"{queue}-{one.seq}", one.at, one.task, one.kind, one.text)


def _output_path(package: PackageFolder, rank: int) -> Path:
    path = Path(rank_output_path(str(package.output), rank))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if rank:
            raise NotFound("no such rank has printed here", received=rank) from None
        return path
    if not stat.S_ISREG(mode):
        raise HttpError(403, "no_rights", "the log is a link, or no plain file, and nothing else is read")
    return path


def _parse_offset(cursor: str) -> int:
    found = int(cursor)
    if found > 2**62:
        raise HttpError(422, "invalid", "is no offset", field="cursor", fix=f"give one up to {2**62}")
    return found
