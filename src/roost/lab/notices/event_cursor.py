"""The position in the queue's events up to which notices were sent, kept in a file of the lab's folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Self

import msgspec

from roost.base import durable, safe_read
from roost.lab.background import daemon_presence
from roost.lab.queue.queue_store import QueueStore

_NAME = "notices.json"


class _CursorState(msgspec.Struct, frozen=True, rename={"notified": "told"}):  # Stored name
    queue: str
    """The queue of the events, as `daemon_presence.identity` names it."""
    seq: int
    at: float
    """When the file was written, in unix seconds."""
    batch: list[int] = []
    """The numbers of the events of the notice that is being sent; empty if none is."""
    skipped: int = 0
    notified: list[str] = []
    """The receivers that were tried with that notice."""


class NoticeCursor:
    """The number of the last event that is done, and the notice that is being sent.

    Args:
        folder: The lab's folder.
        state: The content of the file.
    """

    def __init__(self, folder: Path, state: _CursorState) -> None:
        self._folder, self._state = folder, state

    @classmethod
    def load(cls, store: QueueStore) -> Self | None:
        """Reads the cursor of a queue; None if there is none of this queue."""
        state = _read(store.folder)
        return (
            cls(store.folder, state)
            if state and state.queue == daemon_presence.identity(store.path)
            else None
        )

    @classmethod
    def create(cls, store: QueueStore, since: float) -> Self:
        """Writes a cursor at the newest event of a moment (unix seconds), or of the moment of the last write
        for another queue, whichever is later.

        Raises:
            OSError: The file cannot be written.
        """
        old = _read(store.folder)
        since = max(since, old.at if old else 0.0)
        seq = max((event.seq for event in store.events() if event.at <= since), default=0)
        cursor = cls(store.folder, _CursorState(daemon_presence.identity(store.path), seq, since))
        cursor._write(cursor._state)
        return cursor

    @property
    def seq(self) -> int:
        """The number of the last event that is done."""
        return self._state.seq

    @property
    def batch(self) -> list[int]:
        """The numbers of the events of the notice that is being sent; empty if none is."""
        return self._state.batch

    @property
    def skipped(self) -> int:
        """The number of further events that this notice only counts."""
        return self._state.skipped

    @property
    def notified(self) -> list[str]:
        """The receivers that were tried with this notice."""
        return self._state.notified

    def set_batch(self, batch: list[int], *, skipped: int) -> None:
        """Records the events of the next notice, before it is sent: after a kill it is sent with the same
        events, though more have happened meanwhile. Raises OSError."""
        self._write(_CursorState(self._state.queue, self.seq, time.time(), batch, skipped))

    def add_notified(self, receiver: str) -> None:
        """Records a receiver that was tried with this notice. Raises OSError."""
        notified = [*self.notified, receiver]
        self._write(msgspec.structs.replace(self._state, notified=notified, at=time.time()))

    def advance(self, seq: int) -> None:
        """Records that the notices of all events up to this number are done. Raises OSError."""
        if seq != self.seq:
            self._write(_CursorState(self._state.queue, seq, time.time()))

    def _write(self, state: _CursorState) -> None:
        durable.write(self._folder / _NAME, msgspec.json.encode(state) + b"\n", mode=0o600)
        self._state = state


def discard(folder: Path) -> None:
    """Removes the file, so that later notices start with later events."""
    durable.discard(folder / _NAME)


def _read(folder: Path) -> _CursorState | None:
    try:
        return msgspec.convert(json.loads(safe_read.read(folder / _NAME)), _CursorState)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
