"""The output of a run or an analyzer and the events of the lab, from a cursor on: in pages, or as an event
stream."""

from __future__ import annotations

import functools
import itertools
import stat
import time
from codecs import utf_8_decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base.errors import NotFound
from roost.lab.background import daemon_presence
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.queue_store import QueueStore
from roost.operations import lab
from roost.operations.reading.output_reader import OutputReader
from roost.operations.responses import Event, LogPage, LogPiece, StreamEvent
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import RequestParameters
from roost.serve.routes.stream_end import StreamEndDetector, is_run_over
from roost.supervisor.output.output_file import rank_output_path

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Cursor = Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=4095)]
MAX_BYTES = 1 << 20
_MAX_EVENTS = 1000
_MAX_PIECES = 1
"""Pieces of 64 KiB in one poll. It bounds the memory of each client that follows and does not read."""
_MAX_CHARACTER_BYTES = 4
"""The longest character of UTF-8."""
PageBytes = Annotated[int, Meta(ge=_MAX_CHARACTER_BYTES, le=MAX_BYTES)]


class ReadLog(RequestParameters, frozen=True, kw_only=True):
    """A part of the output of a run."""

    run: RunId
    offset: Offset = 0
    """Bytes from the beginning."""
    limit: PageBytes = 1 << 16
    """Bytes; at least one character of any length fits."""
    rank: Rank = 0


class FollowLog(RequestParameters, frozen=True, kw_only=True):
    """The output of a run, from a cursor on."""

    run: RunId
    cursor: Cursor = "0"
    """The id of the last piece received, or an offset in bytes."""
    rank: Rank = 0


class ReadEvents(RequestParameters, frozen=True, kw_only=True):
    """The lab's events, from a cursor on."""

    cursor: Annotated[str, Meta(pattern=r"^([0-9a-f]{8}-)?[0-9]{1,18}$")] = "0"
    """The cursor of the last event received. If the queue was created again since, all its events follow."""


def read_log(package: PackageFolder, parameters: ReadLog) -> LogPage:
    """Returns a part of the output, in whole characters; a line marks output that was too long to be kept.

    Raises:
        NotFound: There is no output of this rank.
    """
    path = _output_path(package.output, parameters.rank)
    return read_page(path, parameters.offset, parameters.limit, functools.partial(is_run_over, package))


def read_page(path: Path, offset: int, limit: int, is_over: Callable[[], bool]) -> LogPage:
    """Returns a part of an output file, in whole characters.

    Args:
        path: The file; it need not exist yet.
        offset: The first byte.
        limit: How many bytes at most.
        is_over: Whether nothing more will be written into it.
    """
    with OutputReader(path, offset=offset, max_bytes=limit) as reader:
        raw = next(reader.read_new(), b"")
        size = reader.size
    at_end = reader.offset >= size
    # The bytes that follow may complete a partial character, unless there is a hole or the run has ended.
    text, used = utf_8_decode(raw, "replace", False)
    if used < len(raw) and (is_over() if at_end else not used):
        text, used = raw.decode("utf-8", "replace"), len(raw)
    after = min(reader.offset, size) - (len(raw) - used)
    return LogPage(min(offset, size), after, size, text)


def follow_log(package: Path, parameters: FollowLog) -> LogStream:
    """Returns the stream of the output of a run.

    Raises:
        NotFound: There is no such run, or no output of this rank.
    """
    opened = PackageFolder.open(package)
    path = _output_path(opened.output, parameters.rank)
    return LogStream(opened, path, parameters.cursor, functools.partial(is_run_over, opened))


class LogStream:
    """The event stream of an output, in whole characters; the cursor of a piece is the offset after it.

    Args:
        folder: The folder of the sessions that print it.
        path: The file.
        cursor: The cursor to start from.
        is_over: Whether nothing more will be written into it.
    """

    def __init__(self, folder: SessionFolder, path: Path, cursor: str, is_over: Callable[[], bool]) -> None:
        self._folder, self._path = folder, path
        self._reader = OutputReader(path, offset=_parse_offset(cursor))
        self._partial = b""
        """The first bytes of a character whose rest has not been printed yet."""
        self._end = StreamEndDetector(is_over)

    @property
    def has_ended(self) -> bool:
        """Whether the run is over and its output was read."""
        return self._end.has_ended

    def read_new(self) -> Sequence[StreamEvent[LogPiece]]:
        """Returns the output since the last call, in whole characters."""
        found = []
        for piece in itertools.islice(self._reader.read_new(), _MAX_PIECES):
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
            self._reader = OutputReader(self._path, offset=self._next_output_offset())
        return ()

    def close(self) -> None:
        self._reader.close()

    def _piece(self, text: str, raw: bytes) -> StreamEvent[LogPiece]:
        self._end.data_arrived()
        return StreamEvent(str(self._reader.offset - len(self._partial)), "output", LogPiece(text, raw))

    def _next_output_offset(self) -> int:
        """Returns the offset from which to continue in an output file that was replaced by a shorter one at
        the end of a session: the beginning of the next session's output."""
        size = self._path.stat().st_size
        newest = self._folder.sessions()[-1]
        if not newest.is_live:
            return size
        return int(newest.request.output_offsets.get(self._path.name, size))


class LabEventStream:
    """The event stream of the lab.

    Args:
        parameters: The cursor to start from.
    """

    has_ended = False

    def __init__(self, parameters: ReadEvents) -> None:
        self._open()
        self._after = _resolve_cursor(self._store, parameters.cursor)

    def read_new(self) -> Sequence[StreamEvent[Event]]:
        """Returns the events since the last call; first one event ``anew`` if the cursor is of another
        queue."""
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
    """Returns the events after a cursor, at most a thousand."""
    with lab.open_queue() as store:
        queue = store.identity()
        after = _resolve_cursor(store, parameters.cursor)
        found = [_to_event(queue, one) for one in store.events(after=after or 0, limit=_MAX_EVENTS)]
        return found if after is not None else [_new_queue_event(queue), *found[: _MAX_EVENTS - 1]]


def _resolve_cursor(store: QueueStore, cursor: str) -> int | None:
    """Returns the number of the event of a cursor; None if the cursor is of another queue."""
    of, _, number = cursor.rpartition("-")
    seq = int(number)
    is_there = not seq or bool(store.events(after=seq - 1, limit=1))
    return seq if is_there and of in (store.identity(), "") else None


def _new_queue_event(queue: str) -> Event:
    text = "the queue was created again after this cursor: its events follow from the beginning"
    return Event(f"{queue}-0", time.time(), None, "anew", text)


def _to_event(queue: str, one: QueueEvent) -> Event:
    return Event(f"{queue}-{one.seq}", one.at, one.task, one.kind, one.text)


def _output_path(output: Path, rank: int) -> Path:
    path = Path(rank_output_path(str(output), rank))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if rank:
            raise NotFound("there is no output of this rank", received=rank) from None
        return path
    if not stat.S_ISREG(mode):
        raise HttpError(403, "no_rights", "the log is not a regular file, and no other kind is read")
    return path


def _parse_offset(cursor: str) -> int:
    found = int(cursor)
    if found > 2**62:
        raise HttpError(
            422, "invalid", "is not an offset", field="cursor", fix=f"give a number up to {2**62}"
        )
    return found
