"""What a queue keeps beside its tasks: what happened, what was measured, and how it is set."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.text.byte_sizes import format_memory
from roost.lab.queue import database, task_rows
from roost.lab.queue.task import SUCCEEDED

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


RULES = "rules"
"""The setting under which the rules stand."""


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
    """Among how many cards it was shared out."""
    device: str
    """The card's model."""
    at: float


class Span(NamedTuple):
    """How long a task of a sweep took."""

    sweep: str
    profile: str
    scale: float | None
    seconds: float


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
        values = [(now, task, kind, task_rows.printable(text)) for task, kind, text in notes]
        self._connection.executemany("INSERT INTO event (at, task, kind, text) VALUES (?, ?, ?, ?)", values)
        oldest = "(SELECT max(seq) FROM event) - ?"
        self._connection.execute(f"DELETE FROM event WHERE seq <= {oldest}", (MOST_EVENTS,))

    def events(
        self, *, after: int = 0, task: str | None = None, kind: str | None = None, most: int = MOST_EVENTS
    ) -> list[Event]:
        """What happened, the oldest first; the oldest of all are forgotten.

        Args:
            after: What came later than the event of this number.
            task: To this one alone.
            kind: Of this one alone.
            most: So many of them, the oldest.
        """
        asked = {name: value for name, value in (("task", task), ("kind", kind)) if value is not None}
        own = "".join(f" AND {name} = ?" for name in asked)
        with self._reading() as connection:
            sql = f"SELECT seq, at, task, kind, text FROM event WHERE seq > ?{own} ORDER BY seq LIMIT ?"
            return [Event(*row) for row in connection.execute(sql, (after, *asked.values(), most))]

    def learn(self, peak: Peak) -> None:
        """Adds what an attempt has taken; of one key the newest are kept."""
        with self._writing():
            self._learn(peak)

    def _learn(self, peak: Peak, *, task: str | None = None) -> None:
        marks = ", ".join("?" * len(peak))
        self._connection.execute(f"INSERT INTO profile ({', '.join(peak._fields)}) VALUES ({marks})", peak)
        kept = "SELECT seq FROM profile WHERE key = ? ORDER BY seq DESC LIMIT ?"
        sql = f"DELETE FROM profile WHERE key = ? AND seq NOT IN ({kept})"
        self._connection.execute(sql, (peak.key, peak.key, MOST_PEAKS))
        if task is not None:
            beside = f"the driver {format_memory(peak.overhead_mb)} beside"
            self._note_all(
                [(task, "measured", f"it took {format_memory(peak.peak_mb)} of each card, {beside}")]
            )

    def learned(self) -> list[Peak]:
        """What attempts have taken, the oldest first."""
        with self._reading() as connection:
            sql = f"SELECT {', '.join(Peak._fields)} FROM profile ORDER BY seq"
            return [Peak(*row) for row in connection.execute(sql)]

    def learned_since(self, seq: int) -> tuple[int, list[Peak]]:
        """What attempts have taken, the oldest first; and up to which number this tells.

        Args:
            seq: What came later than this number; 0: all.
        """
        with self._reading() as connection:
            sql = f"SELECT seq, {', '.join(Peak._fields)} FROM profile WHERE seq > ? ORDER BY seq"
            found = connection.execute(sql, (seq,)).fetchall()
        return (found[-1][0] if found else seq), [Peak(*row[1:]) for row in found]

    def spans_since(self, seq: int) -> tuple[int, list[Span]]:
        """How long tasks of sweeps took that have succeeded at the first attempt; and up to which event this
        tells.

        Args:
            seq: Those that ended after the event of this number; 0: all that are remembered.
        """
        with self._reading() as connection:
            newest = connection.execute("SELECT max(seq) FROM event").fetchone()[0] or 0
            sql = (
                "SELECT task.sweep, task.profile, task.scale, task.ended - task.started FROM event "
                "JOIN task ON task.id = event.task WHERE event.seq > ? AND event.kind = ? "
                "AND task.sweep IS NOT NULL AND task.attempt = 1 AND task.ended > task.started"
            )
            found = connection.execute(sql, (seq, SUCCEEDED))
            return newest, [Span(*row) for row in found]

    def counts(self, *, user: str | None = None) -> dict[str, int]:
        """How many tasks are in each state in which there are some.

        Args:
            user: His; of all when None.
        """
        own, values = ('WHERE "user" = ?', (user,)) if user is not None else ("", ())
        with self._reading() as connection:
            return dict(connection.execute(f"SELECT state, count(*) FROM task {own} GROUP BY state", values))

    def called(self, ids: Iterable[str]) -> dict[str, tuple[str, str, int]]:
        """Of each of these tasks its name, its package, and how many have this name; nothing of one that is
        not there."""
        with self._reading() as connection:
            known = connection.execute("SELECT id, name, package FROM task").fetchall()
        numbers = Counter(name for _, name, _ in known)
        of = set(ids)
        return {id: (name, package, numbers[name]) for id, name, package in known if id in of}

    def sizes(self) -> dict[str, int]:
        """How many tasks each sweep has."""
        with self._reading() as connection:
            sql = "SELECT sweep, count(*) FROM task WHERE sweep IS NOT NULL GROUP BY sweep"
            return dict(connection.execute(sql))

    def packages(self, states: Sequence[str]) -> list[tuple[str, str, str]]:
        """The id, the state and the package of each task in one of these states."""
        marks = ", ".join("?" * len(states))
        with self._reading() as connection:
            sql = f"SELECT id, state, package FROM task WHERE state IN ({marks}) ORDER BY seq"
            return list(connection.execute(sql, tuple(states)))

    def identity(self) -> str:
        """Eight characters that no other queue has, also none that is made anew in its place."""
        with self._reading() as connection:
            return f"{connection.execute('PRAGMA application_id').fetchone()[0]:08x}"

    def settings(self) -> dict[str, Any]:
        """How the lab is set, as far as somebody has set it."""
        with self._reading() as connection:
            found = connection.execute("SELECT key, value FROM setting ORDER BY key")
            return {key: task_rows.setting(value) for key, value in found}

    def set(self, key: str, value: Any) -> None:
        """Sets one thing, to plain data; None: nobody has set it."""
        with self._writing() as connection:
            if value is None:
                connection.execute("DELETE FROM setting WHERE key = ?", (key,))
            else:
                sql = "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)"
                connection.execute(sql, (key, json.dumps(value)))
            self._note_all([(None, "set", f"{key} = {json.dumps(value)}")])
