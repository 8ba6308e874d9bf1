"""The lab's queue: what every task is now, which cards it holds, and what is remembered beside.

A cache of the packages (`roost.lab.queue.rebuild`), but for the settings and the memory that was measured.
Any
process of the user may open it at any time; each change is one transaction.
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
    ASKED,
    LIVES_NO_MORE,
    WAITS,
    is_stronger,
    require,
    require_next,
    why_stopped,
)

_AT_ONCE = 500
"""Ids in one question: SQLite before 3.32 takes at most 999."""


class Raced(Exception):
    """Somebody else was quicker: the task, or what it was to hold, is no more as it was seen. Look again."""


class Store(history.Remembered):
    """The queue of one user, opened. A thread, and a process that was forked, opens its own.

    Every method raises `Refused` for a queue that is damaged or was locked for 10 s, and `RoostError` when it
    cannot be written; then nothing was changed.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        super().__init__(folder / database.NAME, connection)
        self.folder = folder
        self._untold: list[Task] | None = None
        """Whose tickets are written at the end of the transaction around all."""
        self._is_to_wipe = False
        """Whether an environment was forgotten whose bytes may still stand somewhere."""

    @classmethod
    def open(cls, folder: Path | None = None) -> Self:
        """Opens the queue, which is made if there is none.

        Args:
            folder: The lab's; that of `roost.base.system.state_folder` when None.

        Raises:
            Refused: Its place will not do, it is damaged, or a newer roost has made it.
            RoostError: It cannot be written.
            OSError: Its folder cannot be made.
        """
        path = folder if folder is not None else state_folder.lab_folder()
        return cls(path, database.open_(path))

    def close(self) -> None:
        """Lets go of the file; nothing can be asked any more."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> None:
        """Reads all of it.

        Raises:
            Refused: It is damaged.
        """
        database.check(self._connection, self.path)

    def wake(self) -> None:
        """Makes the daemon look at the queue, if there is one."""
        wakeup.send(self.folder)

    # --- reading

    def task(self, id: str) -> Task:
        """One task, with its plan.

        Raises:
            NotFound: There is none.
        """
        with self._reading():
            return self._task(id)

    def _task(self, id: str) -> Task:
        found = self._selected("WHERE id = ?", (id,), columns=task_rows.SELECTED_WHOLE)
        if not found:
            raise NotFound("there is no such task", received=id, fix="look with `roost tasks`")
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
        """Tasks without their plans, in the order in which they were submitted.

        Args:
            states: Those of these; of all when None, like the rest.
            user: His.
            sweeps: Those of these sweeps, at most 500.
            newest: So many of them, the last ones.
            oldest: So many of them, the first ones; of each sweep its first task alone.
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
        with self._reading():
            found = self._selected(f"{where} ORDER BY seq {limit}", values)
        return found[::-1] if newest is not None else found

    def tasks_since(self, seq: int) -> tuple[int, list[Task] | None]:
        """Up to which event this tells, and which tasks have changed since the one of number ``seq``, without
        their plans, in the order in which they were submitted; None where not all is remembered since."""
        assert not self._connection.in_transaction, "it would tell of what may be taken back"
        with self._reading() as connection:
            sql = "SELECT (SELECT min(seq) FROM event), (SELECT max(seq) FROM event)"
            oldest, newest = (number or 0 for number in connection.execute(sql).fetchone())
            if seq == 0 or oldest > seq + 1:
                return newest, None
            changed = "WHERE id IN (SELECT task FROM event WHERE seq > ?) ORDER BY seq"
            return newest, self._selected(changed, (seq,))

    def find(self, text: str) -> Task:
        """The task that a person means by an id, the beginning of one, a name, or the path of a package; with
        its plan. Of several tasks of one package, the one that has not ended, or the newest.

        Raises:
            NotFound: There is none.
            UsageError: There are several.
        """
        with self._reading() as connection:
            return self._task(task_lookup.find(connection, text))

    def find_all(self, text: str) -> list[Task]:
        """Like `find`; by the id of a sweep, or its beginning, all tasks of that, without their plans.

        Raises:
            NotFound: There is none.
            UsageError: It may mean several.
        """
        with self._reading() as connection:
            sweep = task_lookup.find_sweep(connection, text)
            if sweep is not None:
                return self._selected("WHERE sweep = ? ORDER BY seq", (sweep,))
            return [self._task(task_lookup.find(connection, text))]

    def beginnings(self, ids: Iterable[str]) -> dict[str, str]:
        """`finding.beginnings` of these ids."""
        with self._reading() as connection:
            return task_lookup.beginnings(connection, ids)

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        """The state of each of these tasks; one that is not there has none."""
        found: dict[str, str] = {}
        with self._reading() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                some = ids[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                found |= dict(connection.execute(f"SELECT id, state FROM task WHERE id IN ({marks})", some))
        return found

    def _selected(
        self, rest: str, values: Sequence[Any] = (), *, columns: str = task_rows.SELECTED
    ) -> list[Task]:
        held: defaultdict[str, list[tuple[str, int | None]]] = defaultdict(list)
        for id, card, mb in self._connection.execute("SELECT task, card, mb FROM allocation ORDER BY place"):
            held[id].append((card, mb))
        found = self._connection.execute(f"SELECT {columns} FROM task {rest}", values)
        return [task_rows.task(row, held) for row in found]

    # --- changing

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for all changes inside: the disk is waited for once. Each is made, or raises, for
        itself; an error that ends the block takes all back."""
        with self._writing():
            self._untold = untold = list[Task]()
            try:
                yield
            finally:
                self._untold = None
            for task in untold:
                self._write_ticket(task)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with super()._writing() as connection:
            yield connection
        if self._is_to_wipe and not connection.in_transaction:
            self._is_to_wipe = not database.wipe(connection)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queues new tasks, all or none. Where their packages lie was noted before
        (`roost.lab.queue.package_roots`).

        Raises:
            NotFound: One waits for a task that is not there.
            Refused: One is there already, or waits for itself or for one that did not succeed.
        """
        with self._writing() as connection:
            ids = [id for task in tasks for id in (task.id, *task.others)]
            admission.require_sound(tasks, self.states(ids))
            task_rows.insert(connection, tasks)
            self._note_all((task.id, task.state, "") for task in tasks)

    def start(
        self,
        task: Task,
        cards: Sequence[Card],
        mb: int | None,
        *,
        most_per_card: int | None = None,
        spare_mb: int = 0,
    ) -> Task:
        """Gives a pending task its cards, as its next attempt; gives the task as it is then, with its plan.

        Args:
            task: As it was seen.
            cards: That it gets.
            mb: Of each of them; None: the whole.
            most_per_card: So many tasks may be on one.
            spare_mb: So much of each is nobody's.

        Raises:
            Raced: It is no more as it was seen, or a card is not free any more.
        """
        require(task.state == PENDING, task, STARTING)
        now = {"attempt": task.attempt + 1, "session": None, "started": None, "reason": ""}
        with self._writing() as connection:
            for card in cards:
                if taken := card_assignments.why_not(connection, card, mb, most_per_card, spare_mb):
                    raise Raced(taken)
            card_assignments.give(connection, task.id, [card.id for card in cards], mb)
            holds = {"cards": tuple(card.id for card in cards), "reserved_mb": mb if cards else None}
            on = ", ".join(f"GPU {card.number}" for card in cards) or task.need.cores_in_words or "no card"
            text = f"{on}; attempt {task.attempt + 1}"
            self._replaced(task, STARTING, {**now, **holds}, text)
            return self._task(task.id)

    def move(self, task: Task, to: str, *, measured: history.Peak | None = None, **changes: Any) -> Task:
        """Moves a task on in its life; gives it as it is then. What it holds is free when it lives no more.

        Args:
            task: As it was seen.
            to: Its next state.
            measured: What it has taken, to be remembered with that.
            **changes: Of its other fields: reason, session, started, ended, exit_code, retries, need, …

        Raises:
            Raced: It is no more as it was seen.
        """
        require_next(task, to)
        with self._writing() as connection:
            if to not in LIVE:
                card_assignments.free(connection, task.id)
                changes = {**LIVES_NO_MORE, **changes}
            if to == PENDING:
                changes = {**WAITS, **changes}
            moved = self._replaced(task, to, changes, str(changes.get("reason", "")))
            if measured is not None:
                self._learn(measured, task=task.id)
            if to not in LIVE and to != SUCCEEDED:  # of that its session tells, whatever the queue was
                self._write_ticket(moved)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        """Changes other fields of a live task than its state, as `move` does; gives it as it is then.

        Args:
            task: As it was seen.
            **changes: As for `move`.

        Raises:
            Raced: It is no more as it was seen.
        """
        require(task.state in LIVE, task, task.state)
        with self._writing():
            return self._replaced(task, task.state, changes, ", ".join(changes), kind="changed")

    def ask(self, id: str, how: str) -> Task:
        """Asks a task to end. One that waits is stopped at once, unless it is to wait again anyway; of one
        that lives it is noted, until the daemon has done it. The strongest wish holds.

        Args:
            id: The task.
            how: `EVICT`, `STOP` or `KILL`.

        Raises:
            NotFound: There is none.
            Refused: It has ended.
        """
        with self._writing():
            task = self._unended(id)
            if task.state == PENDING:
                if how == EVICT:
                    return task
                why = why_stopped(task.attempt)
                moved = self._replaced(task, STOPPED, {"reason": why, "ended": time.time()}, why)
                self._write_ticket(moved)
                return moved
            if not is_stronger(how, task.stop_asked):
                return task
            return self._replaced(task, task.state, {"stop_asked": how}, ASKED[how], kind="asked")

    def change(self, id: str, *, held: bool | None = None, priority: int | None = None) -> Task:
        """Holds a task back, or lets it go, or gives it another priority; for its next attempt, if it lives.

        Raises:
            NotFound: There is none.
            Refused: It has ended.
        """
        asked = {"held": held, "priority": priority}
        changes = {name: value for name, value in asked.items() if value is not None}
        said = {"held": "held back" if held else "released", "priority": f"priority {priority}"}
        text = ", ".join(said[name] for name in changes)
        with self._writing():
            task = self._unended(id)
            moved = self._replaced(task, task.state, changes, text, kind="changed")
            if moved.state == PENDING:
                self._write_ticket(moved)
        return moved

    def explain(self, reasons: Mapping[str, str]) -> None:
        """Notes why tasks wait, of those that still do. No version grows, so nobody loses a race by it."""
        values = [(task_rows.printable(reason), id, PENDING) for id, reason in reasons.items()]
        with self._writing() as connection:
            connection.executemany("UPDATE task SET reason = ? WHERE id = ? AND state = ?", values)

    def restore(self, tasks: Sequence[Task]) -> None:
        """Puts tasks into an empty queue as they are, with what they hold."""
        with self._writing() as connection:
            for task in tasks:
                task_rows.insert(connection, [task])
                card_assignments.give(connection, task.id, task.cards, task.reserved_mb)
            self._note_all((task.id, "rebuilt", task.state) for task in tasks)

    def _unended(self, id: str) -> Task:
        task = self._task(id)
        task_lookup.require_unended(task)
        return task

    def _replaced(
        self, task: Task, to: str, changes: Mapping[str, Any], text: str, *, kind: str | None = None
    ) -> Task:
        new = msgspec.structs.replace(task, state=to, version=task.version + 1, **changes)
        # A reason is explained without a version: what was seen may be another than what stands there.
        columns = {**task_rows.changed(task, new), "reason": task_rows.printable(new.reason)}
        names = ", ".join(f'"{name}" = ?' for name in columns)
        sql = f"UPDATE task SET {names} WHERE id = ? AND version = ?"
        if not self._connection.execute(sql, (*columns.values(), task.id, task.version)).rowcount:
            raise Raced(f"the task {task.id} is not as it was seen")
        if to in ENDED:
            self._is_to_wipe |= task_rows.drop_environment(self._connection, task.id)
            new = msgspec.structs.replace(new, plan=task_rows.without_environment(new.plan))
        self._note_all([(task.id, kind or to, text)])
        return new

    def _write_ticket(self, task: Task) -> None:
        """Before the change is committed: after a kill in between a queue made anew must not run again what
        was stopped; and of two who change a task the later one is the later writer here, too. The queue is
        what counts: where the package cannot be written, that is told, and no more. One that is gone needs no
        ticket."""
        if self._untold is not None:
            self._untold.append(task)
            return
        try:
            # A task that was listed has no plan, and its next attempt needs one.
            task_file.write(self.task(task.id) if task.state == PENDING else task, self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self.note("trouble", f"what a new queue would need could not be written: {error}", task=task.id)
