"""How far the queue's events have been told."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Self

import msgspec

from roost.base import durable, safe_read
from roost.lab.background import daemon_presence
from roost.lab.queue.queue_store import Store

_NAME = "notices.json"


class _Stands(msgspec.Struct, frozen=True):
    queue: str
    """Whose events they are, as `presence.identity` tells."""
    seq: int
    at: float
    batch: list[int] = []
    """The events of the notice that is on its way; none if it has arrived."""
    skipped: int = 0
    told: list[str] = []
    """Who was told of it already."""


class Cursor:
    """The number of the last event that was told, in a file of the lab's folder.

    Args:
        folder: The lab's.
        stands: What the file holds.
    """

    def __init__(self, folder: Path, stands: _Stands) -> None:
        self._folder, self._stands = folder, stands

    @classmethod
    def load(cls, store: Store) -> Self | None:
        """The one that stands; None if there is none of this queue."""
        found = _read(store.folder)
        return (
            cls(store.folder, found)
            if found and found.queue == daemon_presence.identity(store.path)
            else None
        )

    @classmethod
    def begin(cls, store: Store, since: float) -> Self:
        """One at the newest event of a moment (unix seconds), or of when another queue was told of last.

        Raises:
            OSError: It cannot be written.
        """
        found = _read(store.folder)
        since = max(since, found.at if found else 0.0)
        seq = max((event.seq for event in store.events() if event.at <= since), default=0)
        cursor = cls(store.folder, _Stands(daemon_presence.identity(store.path), seq, since))
        cursor._write(cursor._stands)
        return cursor

    @property
    def seq(self) -> int:
        """Of the last event that was told."""
        return self._stands.seq

    @property
    def batch(self) -> list[int]:
        """The events of the notice that is on its way; empty if there is none."""
        return self._stands.batch

    @property
    def skipped(self) -> int:
        """How many more that notice counts."""
        return self._stands.skipped

    @property
    def told(self) -> list[str]:
        """Who was told of it already."""
        return self._stands.told

    def take(self, batch: list[int], *, skipped: int) -> None:
        """These events make the next notice, whatever happens until it has arrived: after a kill it is sent
        with the same ones, though more have come meanwhile. Raises OSError."""
        self._write(_Stands(self._stands.queue, self.seq, time.time(), batch, skipped))

    def note_told(self, receiver: str) -> None:
        """One more has been told of that notice. Raises OSError."""
        self._write(msgspec.structs.replace(self._stands, told=[*self.told, receiver], at=time.time()))

    def move(self, seq: int) -> None:
        """All have been told of the events up to this. Raises OSError."""
        if seq != self.seq:
            self._write(_Stands(self._stands.queue, seq, time.time()))

    def _write(self, stands: _Stands) -> None:
        durable.write(self._folder / _NAME, msgspec.json.encode(stands) + b"\n", mode=0o600)
        self._stands = stands


def forget(folder: Path) -> None:
    """Whoever is told later begins anew."""
    durable.discard(folder / _NAME)


def _read(folder: Path) -> _Stands | None:
    try:
        return msgspec.convert(json.loads(safe_read.read(folder / _NAME)), _Stands)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
