"""The other contents of a queue: its events, its memory profiles and the settings of the lab."""

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

MAX_EVENTS = 100_000
MAX_PEAKS_PER_KEY = 64
MAX_PEAKS = 5_000
"""Of all keys together: in a sweep each task may have a key of its own, of 1 to 2 kB."""


class QueueEvent(NamedTuple):
    """An event of the queue: a change of a task or of the lab."""

    seq: int
    at: float
    task: str | None
    kind: str
    """The new state, for a transition."""
    text: str


RULES_KEY = "rules"
"""The key of the setting that holds the rules of the lab."""


class MemoryPeak(NamedTuple):
    """The most memory that an attempt used of each of its cards."""

    key: str
    """The task's ``profile``."""
    scale: float | None
    """The task's ``scale``."""
    peak_mb: float
    """The memory of its tensors."""
    overhead_mb: float
    """The memory that the driver used in addition."""
    ranks: int
    """The number of cards of the attempt."""
    device: str
    """The model of the card."""
    at: float
    """Unix seconds."""


class SweepTaskDuration(NamedTuple):
    """The duration of a task of a sweep that succeeded."""

    sweep: str
    profile: str
    scale: float | None
    seconds: float


class QueueHistory:
    """The part of a `QueueStore` on which no transition of a task depends."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection

    @contextlib.contextmanager
    def _read_transaction(self) -> Iterator[sqlite3.Connection]:
        with database.translate_errors(self.path), database.read_transaction(self._connection) as connection:
            yield connection

    @contextlib.contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with database.translate_errors(self.path), database.write_transaction(self._connection) as connection:
            yield connection

    def add_event(self, kind: str, text: str, *, task: str | None = None) -> None:
        """Adds an event."""
        with self._write_transaction():
            self._add_events([(task, kind, text)])

    def _add_events(self, notes: Iterable[tuple[str | None, str, str]]) -> None:
        now = time.time()
        values = [(now, task, kind, task_rows.printable(text)) for task, kind, text in notes]
        self._connection.executemany("INSERT INTO event (at, task, kind, text) VALUES (?, ?, ?, ?)", values)
        oldest = "(SELECT max(seq) FROM event) - ?"
        self._connection.execute(f"DELETE FROM event WHERE seq <= {oldest}", (MAX_EVENTS,))

    def events(
        self, *, after: int = 0, task: str | None = None, kind: str | None = None, limit: int = MAX_EVENTS
    ) -> list[QueueEvent]:
        """Returns events, the oldest first; the newest `MAX_EVENTS` are kept.

        Args:
            after: Only events with a higher number.
            task: Only events of the task with this id.
            kind: Only events of this kind.
            limit: At most so many, the oldest of them.
        """
        asked = {name: value for name, value in (("task", task), ("kind", kind)) if value is not None}
        own = "".join(f" AND {name} = ?" for name in asked)
        with self._read_transaction() as connection:
            sql = f"SELECT seq, at, task, kind, text FROM event WHERE seq > ?{own} ORDER BY seq LIMIT ?"
            return [QueueEvent(*row) for row in connection.execute(sql, (after, *asked.values(), limit))]

    def add_peak(self, peak: MemoryPeak) -> None:
        """Adds the memory that an attempt used; the newest `MAX_PEAKS_PER_KEY` of a key are kept, and the
        newest `MAX_PEAKS` of all."""
        with self._write_transaction():
            self._add_peak(peak)

    def _add_peak(self, peak: MemoryPeak, *, task: str | None = None) -> None:
        marks = ", ".join("?" * len(peak))
        self._connection.execute(f"INSERT INTO profile ({', '.join(peak._fields)}) VALUES ({marks})", peak)
        kept = "SELECT seq FROM profile WHERE key = ? ORDER BY seq DESC LIMIT ?"
        sql = f"DELETE FROM profile WHERE key = ? AND seq NOT IN ({kept})"
        self._connection.execute(sql, (peak.key, peak.key, MAX_PEAKS_PER_KEY))
        oldest = "(SELECT max(seq) FROM profile) - ?"
        self._connection.execute(f"DELETE FROM profile WHERE seq <= {oldest}", (MAX_PEAKS,))
        if task is not None:
            overhead = f"plus {format_memory(peak.overhead_mb)} of the driver"
            self._add_events(
                [(task, "measured", f"it used {format_memory(peak.peak_mb)} of each card, {overhead}")]
            )

    def peaks(self) -> list[MemoryPeak]:
        """Returns the memory that attempts used, the oldest first."""
        with self._read_transaction() as connection:
            sql = f"SELECT {', '.join(MemoryPeak._fields)} FROM profile ORDER BY seq"
            return [MemoryPeak(*row) for row in connection.execute(sql)]

    def peaks_since(self, seq: int) -> tuple[int, list[MemoryPeak]]:
        """Returns the number of the newest peak, and the peaks since a number, the oldest first.

        Args:
            seq: Only peaks with a higher number; 0: all.
        """
        with self._read_transaction() as connection:
            sql = f"SELECT seq, {', '.join(MemoryPeak._fields)} FROM profile WHERE seq > ? ORDER BY seq"
            found = connection.execute(sql, (seq,)).fetchall()
        return (found[-1][0] if found else seq), [MemoryPeak(*row[1:]) for row in found]

    def durations_since(self, seq: int) -> tuple[int, list[SweepTaskDuration]]:
        """Returns the number of the newest event, and the durations of sweep tasks that succeeded at the
        first attempt.

        Args:
            seq: Only tasks that ended after the event of this number; 0: all that still have an event.
        """
        with self._read_transaction() as connection:
            newest = connection.execute("SELECT max(seq) FROM event").fetchone()[0] or 0
            sql = (
                "SELECT task.sweep, task.profile, task.scale, task.ended - task.started FROM event "
                "JOIN task ON task.id = event.task WHERE event.seq > ? AND event.kind = ? "
                "AND task.sweep IS NOT NULL AND task.attempt = 1 AND task.ended > task.started"
            )
            found = connection.execute(sql, (seq, SUCCEEDED))
            return newest, [SweepTaskDuration(*row) for row in found]

    def state_counts(self, *, user: str | None = None) -> dict[str, int]:
        """Returns the number of tasks in each state that has any.

        Args:
            user: Only tasks of this user; None: of all users.
        """
        own, values = ('WHERE "user" = ?', (user,)) if user is not None else ("", ())
        with self._read_transaction() as connection:
            return dict(connection.execute(f"SELECT state, count(*) FROM task {own} GROUP BY state", values))

    def task_names(self, ids: Iterable[str]) -> dict[str, tuple[str, str, int]]:
        """Returns for each of these tasks its name, its package, and how many tasks have this name; a task
        that is not in the queue is left out."""
        with self._read_transaction() as connection:
            known = connection.execute("SELECT id, name, package FROM task").fetchall()
        numbers = Counter(name for _, name, _ in known)
        wanted_ids = set(ids)
        return {id: (name, package, numbers[name]) for id, name, package in known if id in wanted_ids}

    def sweep_sizes(self) -> dict[str, int]:
        """Returns the number of tasks of each sweep."""
        with self._read_transaction() as connection:
            sql = "SELECT sweep, count(*) FROM task WHERE sweep IS NOT NULL GROUP BY sweep"
            return dict(connection.execute(sql))

    def task_packages(self, states: Sequence[str]) -> list[tuple[str, str, str]]:
        """Returns the id, the state and the package of each task in one of these states, without tasks that
        only read a package."""
        marks = ", ".join("?" * len(states))
        with self._read_transaction() as connection:
            sql = f"SELECT id, state, package FROM task WHERE state IN ({marks}) "
            sql += "AND session_folder = '' ORDER BY seq"
            return list(connection.execute(sql, tuple(states)))

    def identity(self) -> str:
        """Returns eight characters that no other queue has, also not one that was rebuilt in the same
        folder."""
        with self._read_transaction() as connection:
            return f"{connection.execute('PRAGMA application_id').fetchone()[0]:08x}"

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the lab that have been set."""
        with self._read_transaction() as connection:
            found = connection.execute("SELECT key, value FROM setting ORDER BY key")
            return {key: task_rows.decode_setting(value) for key, value in found}

    def set_setting(self, key: str, value: Any) -> None:
        """Sets one setting to plain data; None removes it."""
        with self._write_transaction() as connection:
            if value is None:
                connection.execute("DELETE FROM setting WHERE key = ?", (key,))
            else:
                sql = "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)"
                connection.execute(sql, (key, json.dumps(value)))
            self._add_events([(None, "set", f"{key} = {json.dumps(value)}")])
