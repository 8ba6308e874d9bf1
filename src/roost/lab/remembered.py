"""What a queue keeps beside its tasks: what happened, what was measured, and how it is set."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from roost.lab import database, rows

MOST_EVENTS = 100_000
MOST_PEAKS = 64
"""Of one key."""


class Event(NamedTuple):
    """Something that happened; of a task, or of the lab."""

    seq: int
    at: float
    task: str | None
    kind: str
    """A state, for a transition."""
    text: str


class Peak(NamedTuple):
    """The memory that an attempt has taken of each of its cards."""

    key: str
    """A task's ``profile``."""
    scale: float | None
    """A task's."""
    peak_mb: float
    """What its tensors took."""
    overhead_mb: float
    """What the driver took beside."""
    ranks: int
    device: str
    """The card's model."""
    at: float


class Remembered:
    """The part of a `Store` that no transition of a task depends on."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with database.told(self.path), database.reading(self._connection) as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with database.told(self.path), database.writing(self._connection) as connection:
            yield connection

    def note(self, kind: str, text: str, *, task: str | None = None) -> None:
        """Adds an event."""
        with self._writing():
            self._note_all([(task, kind, text)])

    def _note_all(self, notes: Iterable[tuple[str | None, str, str]]) -> None:
        now = time.time()
        values = [(now, task, kind, rows.printable(text)) for task, kind, text in notes]
        self._connection.executemany("INSERT INTO event (at, task, kind, text) VALUES (?, ?, ?, ?)", values)
        oldest = "(SELECT max(seq) FROM event) - ?"
        self._connection.execute(f"DELETE FROM event WHERE seq <= {oldest}", (MOST_EVENTS,))

    def events(self, *, after: int = 0, task: str | None = None) -> list[Event]:
        """What happened, the oldest first; the oldest of all are forgotten.

        Args:
            after: What came later than the event of this number.
            task: To this one alone.
        """
        own, values = ("AND task = ?", (after, task)) if task is not None else ("", (after,))
        with self._reading() as connection:
            sql = f"SELECT seq, at, task, kind, text FROM event WHERE seq > ? {own} ORDER BY seq"
            return [Event(*row) for row in connection.execute(sql, values)]

    def learn(self, peak: Peak) -> None:
        """Adds what an attempt has taken; of one key the newest are kept."""
        with self._writing() as connection:
            marks = ", ".join("?" * len(peak))
            connection.execute(f"INSERT INTO profile ({', '.join(peak._fields)}) VALUES ({marks})", peak)
            kept = "SELECT seq FROM profile WHERE key = ? ORDER BY seq DESC LIMIT ?"
            sql = f"DELETE FROM profile WHERE key = ? AND seq NOT IN ({kept})"
            connection.execute(sql, (peak.key, peak.key, MOST_PEAKS))

    def learned(self, key: str | None = None) -> list[Peak]:
        """What attempts have taken, the oldest first.

        Args:
            key: Those of this one; all when None.
        """
        own, values = ("WHERE key = ?", (key,)) if key is not None else ("", ())
        with self._reading() as connection:
            sql = f"SELECT {', '.join(Peak._fields)} FROM profile {own} ORDER BY seq"
            return [Peak(*row) for row in connection.execute(sql, values)]

    def settings(self) -> dict[str, Any]:
        """How the lab is set, as far as somebody has set it."""
        with self._reading() as connection:
            found = connection.execute("SELECT key, value FROM setting ORDER BY key")
            return {key: rows.setting(value) for key, value in found}

    def set(self, key: str, value: Any) -> None:
        """Sets one thing, to plain data; None: nobody has set it."""
        with self._writing() as connection:
            if value is None:
                connection.execute("DELETE FROM setting WHERE key = ?", (key,))
            else:
                sql = "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)"
                connection.execute(sql, (key, json.dumps(value)))
            self._note_all([(None, "set", f"{key} = {json.dumps(value)}")])
