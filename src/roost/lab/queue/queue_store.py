"""The lab's queue: the state and the cards of every task, with the events, memory profiles and settings of
the lab (`roost.lab.queue.history`).

All but the settings and the memory profiles can be rebuilt from the packages (`roost.lab.queue.rebuild`). Any
process of the user may open the queue at any time; each change is one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from roost.base.errors import NotFound
from roost.base.system import state_folder
from roost.devices.card import Card
from roost.devices.resource_request import format_card_share
from roost.lab.queue import (
    admission,
    card_assignments,
    database,
    history,
    task_file,
    task_lookup,
    task_rows,
    wakeup,
)
from roost.lab.queue.task import ENDED, EVICT, LIVE, PENDING, STARTING, STOPPED, SUCCEEDED, Task
from roost.lab.queue.task_states import (
    PENDING_FIELDS,
    RELEASED_FIELDS,
    STOP_REQUESTS,
    is_stronger,
    require_allowed,
    require_transition,
    stop_reason_while_pending,
)

_IDS_PER_QUERY = 500
"""SQLite before 3.32 allows at most 999 values in one query."""


class ConcurrentChange(Exception):
    """Another process was faster: the task or a card has changed since the caller read it. Read again."""


class QueueStore(history.QueueHistory):
    """The open queue of one user. Each thread and each forked process opens its own.

    Every method raises `Refused` for a queue that is damaged or was locked for 10 s, and `RoostError` if it
    cannot be written; then nothing is changed.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        super().__init__(folder / database.FILE_NAME, connection)
        self.folder = folder
        self._deferred_files: list[Task] | None = None
        """The tasks whose files are written at the end of the outer transaction; None outside of one."""
        self._wal_holds_environment = False
        """Whether an environment was deleted whose bytes may still be in the write-ahead log."""

    @classmethod
    def open(cls, folder: Path | None = None) -> Self:
        """Opens the queue, and creates it if there never was one.

        Args:
            folder: The lab's folder; None: that of `roost.base.system.state_folder`.

        Raises:
            Refused: The folder is not suitable, or the queue is damaged, missing, or of a newer roost.
            RoostError: The queue cannot be written.
            OSError: The folder cannot be created.
        """
        path = folder if folder is not None else state_folder.lab_folder()
        return cls(path, database.open_database(path))

    def close(self) -> None:
        """Closes the file; no method works afterwards."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> None:
        """Reads the whole queue and checks its integrity.

        Raises:
            Refused: The queue is damaged.
        """
        database.check_integrity(self._connection, self.path)

    def wake_daemon(self) -> None:
        """Makes the daemon read the queue, if one runs."""
        wakeup.send(self.folder)

    # --- reading

    def task(self, id: str) -> Task:
        """Returns one task, with its plan.

        Raises:
            NotFound: No task has this id.
        """
        with self._read_transaction():
            return self._task(id)

    def _task(self, id: str) -> Task:
        found = self._select("WHERE id = ?", (id,), columns=task_rows.COLUMN_LIST_WITH_PLAN)
        if not found:
            raise NotFound("there is no such task", received=id, fix="choose an id from `roost tasks`")
        return found[0]

    def tasks(
        self,
        *,
        states: Sequence[str] | None = None,
        user: str | None = None,
        sweeps: Sequence[str] | None = None,
        newest: int | None = None,
        oldest: int | None = None,
    ) -> list[Task]:
        """Returns tasks without their plans, in the order of submission.

        Args:
            states: Only tasks in these states; None, here as below: no condition.
            user: Only tasks of this user.
            sweeps: Only tasks of these sweeps, at most 500.
            newest: At most so many, the newest of them.
            oldest: At most so many, the oldest of them, with only the first task of each sweep.
        """
        terms, values = [], []
        if user is not None:
            terms.append('"user" = ?')
            values.append(user)
        for name, some in (("state", states), ("sweep", sweeps)):
            if some is not None:
                terms.append(f'"{name}" IN ({", ".join("?" * len(some))})')
                values += some
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        if oldest is not None:
            firsts = f"SELECT min(seq) FROM task {where} GROUP BY coalesce(sweep, id) ORDER BY 1"
            where = f"WHERE seq IN ({firsts} LIMIT {oldest:d})"
        limit = f"DESC LIMIT {newest:d}" if newest is not None else ""
        with self._read_transaction():
            found = self._select(f"{where} ORDER BY seq {limit}", values)
        return found[::-1] if newest is not None else found

    def tasks_since(self, seq: int) -> tuple[int, list[Task] | None]:
        """Returns the number of the newest event, and the tasks that have changed since event ``seq``,
        without their plans, in the order of submission; None for the tasks if later events were removed
        already."""
        assert not self._connection.in_transaction, "it would report changes that may be rolled back"
        with self._read_transaction() as connection:
            sql = "SELECT (SELECT min(seq) FROM event), (SELECT max(seq) FROM event)"
            oldest, newest = (number or 0 for number in connection.execute(sql).fetchone())
            if seq == 0 or oldest > seq + 1:
                return newest, None
            changed = "WHERE id IN (SELECT task FROM event WHERE seq > ?) ORDER BY seq"
            return newest, self._select(changed, (seq,))

    def find(self, text: str) -> Task:
        """Returns the task that `task_lookup.find` finds, with its plan.

        Raises:
            NotFound: No task matches.
            UsageError: Several tasks match.
        """
        with self._read_transaction() as connection:
            return self._task(task_lookup.find(connection, text))

    def find_all(self, text: str) -> list[Task]:
        """Like `find`; for a sweep (`task_lookup.find_sweep`) all its tasks, without their plans.

        Raises:
            NotFound: No task and no sweep matches.
            UsageError: Several match.
        """
        with self._read_transaction() as connection:
            sweep = task_lookup.find_sweep(connection, text)
            if sweep is not None:
                return self._select("WHERE sweep = ? ORDER BY seq", (sweep,))
            return [self._task(task_lookup.find(connection, text))]

    def unique_prefixes(self, ids: Iterable[str]) -> dict[str, str]:
        """Returns `task_lookup.unique_prefixes` of these ids."""
        with self._read_transaction() as connection:
            return task_lookup.unique_prefixes(connection, ids)

    def all_ids(self) -> list[str]:
        """Returns the ids of all tasks and sweeps, sorted (`task_lookup.unique_prefix`)."""
        with self._read_transaction() as connection:
            return task_lookup.all_ids(connection)

    def data_version(self) -> int:
        """Returns a number that differs after another process has changed the queue; it costs no read of a
        table."""
        with database.translate_errors(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def wait_reasons(self) -> dict[str, str]:
        """Returns the reasons of the pending tasks, by id; a change of them is no event."""
        with self._read_transaction() as connection:
            return dict(connection.execute("SELECT id, reason FROM task WHERE state = ?", (PENDING,)))

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns the state of each of these tasks; a task that is not in the queue is left out."""
        found: dict[str, str] = {}
        with self._read_transaction() as connection:
            for start in range(0, len(ids), _IDS_PER_QUERY):
                some = ids[start : start + _IDS_PER_QUERY]
                marks = ", ".join("?" * len(some))
                found |= dict(connection.execute(f"SELECT id, state FROM task WHERE id IN ({marks})", some))
        return found

    def _select(
        self, rest: str, values: Sequence[Any] = (), *, columns: str = task_rows.COLUMN_LIST
    ) -> list[Task]:
        held: defaultdict[str, list[tuple[str, int | None]]] = defaultdict(list)
        for id, card, mb in self._connection.execute("SELECT task, card, mb FROM allocation ORDER BY place"):
            held[id].append((card, mb))
        found = self._connection.execute(f"SELECT {columns} FROM task {rest}", values)
        return [task_rows.task_from_row(row, held) for row in found]

    # --- writing

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction for all changes in a block, which waits for the disk once. A change that raises has
        no effect; an error that leaves the block rolls all changes back."""
        with self._write_transaction():
            self._deferred_files = deferred = list[Task]()
            try:
                yield
            finally:
                self._deferred_files = None
            for task in deferred:
                self._write_task_file(task)

    @contextlib.contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with super()._write_transaction() as connection:
            yield connection
        if self._wal_holds_environment and not connection.in_transaction:
            self._wal_holds_environment = not database.truncate_wal(connection)

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        """Queues new tasks, all or none; returns them with their numbers. The caller has recorded the folders
        of their packages before (`roost.lab.queue.package_roots`).

        Raises:
            NotFound: A dependency is not in the queue.
            Refused: An id is queued already, or a task depends on itself or on a task that did not succeed.
        """
        with self._write_transaction() as connection:
            ids = [id for task in tasks for id in (task.id, *task.dependencies)]
            admission.require_can_start(tasks, self.states(ids))
            queued = task_rows.insert(connection, tasks)
            self._add_events((task.id, task.state, "") for task in queued)
        return queued

    def start(
        self,
        task: Task,
        cards: Sequence[Card],
        mb: int | None,
        *,
        most_per_card: int | None = None,
        spare_mb: int = 0,
        memory_reason: str = "",
    ) -> Task:
        """Assigns cards to a pending task for its next attempt; returns the changed task, with its plan.

        Args:
            task: The task as the caller read it.
            cards: The cards that it gets.
            mb: The memory on each of them; None: the whole card.
            most_per_card: The maximum number of tasks on a card; None: no limit.
            spare_mb: The memory of each card that no task gets.
            memory_reason: Why it gets that memory, for its event; empty: as requested.

        Raises:
            ConcurrentChange: The task has changed since, or a card is no longer free.
        """
        require_allowed(task.state == PENDING, task, STARTING)
        now = {"attempt": task.attempt + 1, "session": None, "started": None, "reason": ""}
        with self._write_transaction() as connection:
            for card in cards:
                if reason := card_assignments.refusal_reason(connection, card, mb, most_per_card, spare_mb):
                    raise ConcurrentChange(reason)
            card_assignments.assign(connection, task.id, [card.id for card in cards], mb)
            holds = {"cards": tuple(card.id for card in cards), "reserved_mb": mb if cards else None}
            on = ", ".join([*(f"GPU {card.number}" for card in cards), *task.need.host_texts]) or "no card"
            text = f"{on}; attempt {task.attempt + 1}"
            if memory_reason and cards:
                text += f"; {format_card_share(mb)}: {memory_reason}"
            self._replace(task, STARTING, {**now, **holds}, text)
            return self._task(task.id)

    def transition(
        self, task: Task, to: str, *, peak: history.MemoryPeak | None = None, **changes: Any
    ) -> Task:
        """Changes the state of a task; returns the changed task. Its cards are released when it is no longer
        live.

        Args:
            task: The task as the caller read it.
            to: The new state.
            peak: The memory that the attempt used, stored in the same transaction.
            **changes: Other fields: reason, session, started, ended, exit_code, retries, need, …

        Raises:
            ConcurrentChange: The task has changed since.
        """
        require_transition(task, to)
        with self._write_transaction() as connection:
            if to not in LIVE:
                card_assignments.release(connection, task.id)
                changes = {**RELEASED_FIELDS, **changes}
            if to == PENDING:
                changes = {**PENDING_FIELDS, **changes}
            moved = self._replace(task, to, changes, str(changes.get("reason", "")))
            if peak is not None:
                self._add_peak(peak, task=task.id)
            if to not in LIVE and to != SUCCEEDED:  # a success is in the session file, whatever the queue
                self._write_task_file(moved)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        """Changes fields of a live task but not its state; returns the changed task.

        Args:
            task: The task as the caller read it.
            **changes: As for `transition`.

        Raises:
            ConcurrentChange: The task has changed since.
        """
        require_allowed(task.state in LIVE, task, task.state)
        with self._write_transaction():
            return self._replace(task, task.state, changes, ", ".join(changes), kind="changed")

    def request_stop(self, id: str, request: str) -> Task:
        """Requests the end of a task. A pending task is stopped at once, except by `EVICT`; for a live task
        the request is stored until the daemon has carried it out, and the strongest request counts.

        Args:
            id: The id of the task.
            request: `EVICT`, `STOP` or `KILL`.

        Raises:
            NotFound: No task has this id.
            Refused: The task has ended.
        """
        with self._write_transaction():
            task = self._unended_task(id)
            if task.state == PENDING:
                if request == EVICT:
                    return task
                why = stop_reason_while_pending(task.attempt)
                moved = self._replace(task, STOPPED, {"reason": why, "ended": time.time()}, why)
                self._write_task_file(moved)
                return moved
            if not is_stronger(request, task.stop_asked):
                return task
            return self._replace(
                task, task.state, {"stop_asked": request}, STOP_REQUESTS[request], kind="asked"
            )

    def change(self, id: str, *, held: bool | None = None, priority: int | None = None) -> Task:
        """Holds or releases a task, or changes its priority; for a live task, with effect on its next
        attempt.

        Raises:
            NotFound: No task has this id.
            Refused: The task has ended.
        """
        given = {"held": held, "priority": priority}
        changes = {name: value for name, value in given.items() if value is not None}
        texts = {"held": "held" if held else "released", "priority": f"priority {priority}"}
        text = ", ".join(texts[name] for name in changes)
        with self._write_transaction():
            task = self._unended_task(id)
            moved = self._replace(task, task.state, changes, text, kind="changed")
            if moved.state == PENDING:
                self._write_task_file(moved)
        return moved

    def set_wait_reasons(self, reasons: Mapping[str, str]) -> None:
        """Sets the wait reasons of tasks that are still pending. Their versions stay, so that this conflicts
        with no other change."""
        values = [(task_rows.printable(reason), id, PENDING) for id, reason in reasons.items()]
        with self._write_transaction() as connection:
            connection.executemany("UPDATE task SET reason = ? WHERE id = ? AND state = ?", values)

    def restore(self, tasks: Sequence[Task]) -> None:
        """Inserts tasks into an empty queue in any state, with the cards that they hold."""
        with self._write_transaction() as connection:
            for task in tasks:
                task_rows.insert(connection, [task])
                card_assignments.assign(connection, task.id, task.cards, task.reserved_mb)
            self._add_events((task.id, "rebuilt", task.state) for task in tasks)

    def _unended_task(self, id: str) -> Task:
        task = self._task(id)
        task_lookup.require_unended(task)
        return task

    def _replace(
        self, task: Task, to: str, changes: Mapping[str, Any], text: str, *, kind: str | None = None
    ) -> Task:
        new = msgspec.structs.replace(task, state=to, version=task.version + 1, **changes)
        # A wait reason changes without a new version: the stored one may differ from the one that was read.
        columns = {**task_rows.changed_columns(task, new), "reason": task_rows.printable(new.reason)}
        names = ", ".join(f'"{name}" = ?' for name in columns)
        sql = f"UPDATE task SET {names} WHERE id = ? AND version = ?"
        if not self._connection.execute(sql, (*columns.values(), task.id, task.version)).rowcount:
            raise ConcurrentChange(f"the task {task.id} has changed since it was read")
        if to in ENDED:
            self._wal_holds_environment |= task_rows.drop_environment(self._connection, task.id)
            new = msgspec.structs.replace(new, plan=task_rows.without_environment(new.plan))
        self._add_events([(task.id, kind or to, text)])
        return new

    def _write_task_file(self, task: Task) -> None:
        """Writes the file of a task into its package, before the change is committed.

        After a kill in between, a rebuilt queue must not run a stopped task again; and of two processes that
        change a task, the later one also writes the file later. The queue is authoritative: if the package
        cannot be written, an event records that, and the change is made. A deleted package needs no file.
        """
        if self._deferred_files is not None:
            self._deferred_files.append(task)
            return
        try:
            # A listed task has no plan, which its next attempt needs.
            task_file.write(self.task(task.id) if task.state == PENDING else task, self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self.add_event(
                "trouble", f"the copy of the task in its package could not be written: {error}", task=task.id
            )
