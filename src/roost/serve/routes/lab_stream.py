"""`GET /lab/follow`: the live state of the lab, from one observer for all subscribers."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Annotated

import msgspec
from msgspec import Meta

from roost.base.system import state_folder
from roost.operations.live_lab.lab_change import LabChange, TaskFields, TaskMetrics
from roost.operations.live_lab.lab_observer import POLL_SECONDS, LabObserver
from roost.operations.live_lab.lab_state import LabState
from roost.operations.responses import StreamEvent
from roost.serve import request_journal
from roost.serve.http import error_response
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import EventStream, RequestParameters, Route, encode_json

MetricPattern = Annotated[str, Meta(min_length=1, max_length=200)]
_MAX_BATCHES, _MAX_BYTES = 1000, 8 << 20
"""The changes that are kept for subscribers that read slowly or come back; one that is further behind gets a
snapshot."""
_MAX_EVENTS = 32
"""Events of one poll of a stream. It bounds the memory of a client that does not read."""
_LINGER_SECONDS = 15.0
"""The observer waits so long for a subscriber that comes back before it ends."""
_FIRST_SECONDS = 30.0


class FollowLab(RequestParameters, frozen=True, kw_only=True):
    """The live state of the lab, from a cursor on."""

    cursor: Annotated[str, Meta(pattern=r"^([0-9a-f]{8}-[0-9]{1,18})?$")] = ""
    """The id of the last event received; without it, or if it is too old, the whole state comes first."""
    metrics: Annotated[tuple[MetricPattern, ...], Meta(max_length=64)] = ()
    """Only metrics that one of these patterns matches: ``valid/*``. None: all."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """The changes of one poll of the observer, encoded once for all subscribers."""

    seq: int
    changes: Sequence[LabChange]
    encoded: bytes


class LabFeed:
    """Observes the lab in one thread while there are subscribers, and keeps its last changes."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._subscribers = 0
        self._left_at = 0.0
        self._thread: threading.Thread | None = None
        self._clear()

    def _clear(self) -> None:
        self._name = secrets.token_hex(4)
        """The first part of the cursors; an observer that is started later has another."""
        self._folder = state_folder.lab_folder()
        self._state = LabState()
        self._seq = 0
        self._batches: deque[_Batch] = deque()
        self._kept_bytes = 0
        self._snapshot: _Batch | None = None
        self._error: Exception | None = None

    def join(self) -> None:
        """Adds a subscriber; starts the observer if there is none, and waits for its first look."""
        with self._lock:
            self._subscribers += 1
            if self._thread is None or self._folder != state_folder.lab_folder():
                self._clear()
                self._thread = threading.Thread(target=self._observe, name="lab observer", daemon=True)
                self._thread.start()
            self._lock.wait_for(lambda: self._seq or self._error is not None, timeout=_FIRST_SECONDS)

    def leave(self) -> None:
        """Removes a subscriber."""
        with self._lock:
            self._subscribers -= 1
            self._left_at = time.monotonic()

    def read_after(self, cursor: str) -> tuple[str, list[_Batch]]:
        """Returns ``changes`` and the batches after a cursor, or ``snapshot`` and the whole state as one
        batch, if the cursor is of another observer or too old.

        Raises:
            HttpError: The observer has failed.
        """
        name, _, number = cursor.partition("-")
        with self._lock:
            if self._error is not None:
                raise HttpError(500, "internal", f"the lab cannot be observed: {self._error}")
            first = self._batches[0].seq if self._batches else self._seq + 1
            if name != self._name or not first - 1 <= int(number) <= self._seq:
                return "snapshot", [self._whole()] if self._seq else []
            after = int(number) - first + 1
            return "changes", [self._batches[at] for at in range(after, len(self._batches))][:_MAX_EVENTS]

    def cursor(self, batch: _Batch) -> str:
        """Returns the cursor after a batch."""
        return f"{self._name}-{batch.seq}"

    def _whole(self) -> _Batch:
        if self._snapshot is None or self._snapshot.seq != self._seq:
            changes = self._state.snapshot()
            self._snapshot = _Batch(self._seq, changes, encode_json(changes))
        return self._snapshot

    # --- the observer's thread

    def _observe(self) -> None:
        own, observer = threading.current_thread(), None
        try:
            observer = LabObserver(read_journal=request_journal.read_in)
            while self._add(own, observer.poll()):
                time.sleep(POLL_SECONDS)
        except Exception as error:  # noqa: BLE001  - the subscribers get it
            error_response.log_exception(error)
            with self._lock:
                if self._thread is own:
                    self._error, self._thread = error, None
                    self._lock.notify_all()
        finally:
            if observer is not None:
                observer.close()

    def _add(self, own: threading.Thread, changes: Sequence[LabChange]) -> bool:
        """Adds the changes of one look; returns whether the thread goes on."""
        encoded = encode_json(changes) if changes else b""
        with self._lock:
            if self._thread is not own:
                return False
            if not self._subscribers and time.monotonic() - self._left_at > _LINGER_SECONDS:
                self._thread = None
                return False
            if changes:
                self._seq += 1
                self._state.apply_all(changes)
                self._batches.append(_Batch(self._seq, changes, encoded))
                self._kept_bytes += len(encoded)
                while len(self._batches) > _MAX_BATCHES or self._kept_bytes > _MAX_BYTES:
                    self._kept_bytes -= len(self._batches.popleft().encoded)
                self._lock.notify_all()
        return True


_feed = LabFeed()
"""The feed of this process, which is one server."""


class LabStream:
    """The event stream of one subscriber.

    Args:
        parameters: The cursor to start from, and the metrics.
        feed: The feed.
    """

    has_ended = False

    def __init__(self, parameters: FollowLab, feed: LabFeed = _feed) -> None:
        self._feed, self._cursor = feed, parameters.cursor
        patterns = [translate(one) for one in parameters.metrics]
        self._is_shown = re.compile("|".join(patterns)).match if patterns else None
        feed.join()
        self._has_left = False

    def read_new(self) -> Sequence[StreamEvent[msgspec.Raw]]:
        """Returns the changes since the last call; the whole state first, if the cursor is not known."""
        kind, batches = self._feed.read_after(self._cursor)
        found = []
        for batch in batches:
            self._cursor = self._feed.cursor(batch)
            if (data := self._data(batch)) is not None:
                found.append(StreamEvent(self._cursor, kind, msgspec.Raw(data)))
        return found

    def _data(self, batch: _Batch) -> bytes | None:
        """Returns the changes as JSON; None if none is left."""
        if self._is_shown is None:
            return batch.encoded
        kept = [one for change in batch.changes if (one := _with_metrics(change, self._is_shown)) is not None]
        return encode_json(kept) if kept else None

    def close(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._feed.leave()


def _with_metrics(change: LabChange, is_shown: Callable[[str], object]) -> LabChange | None:
    """Returns a change with only some metrics; None if nothing is left of it."""
    if isinstance(change, TaskMetrics):
        points = {name: found for name, found in change.points.items() if is_shown(name)}
        if not points and change.void_after is None:
            return None
        return msgspec.structs.replace(change, points=points)
    if isinstance(change, TaskFields):
        metrics = {name: value for name, value in change.metrics.items() if is_shown(name)}
        return msgspec.structs.replace(change, metrics=metrics)
    return change


def _follow_lab(parameters: FollowLab) -> EventStream:
    return LabStream(parameters)


ROUTES: Sequence[Route] = (
    Route(name="follow_lab", path="/lab/follow",
          summary="The live state of the lab: tasks, progress, metrics, cards.",
          parameters=FollowLab, answer=EventStream, run=_follow_lab),
)  # fmt: skip
