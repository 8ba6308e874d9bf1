"""Reads the changes of the queue: rows of tasks, sweeps, the order, the counts of states."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from roost.devices.card import Card
from roost.lab.background import daemon_presence
from roost.lab.memory.expectations import Expectations
from roost.lab.policy.policy_state import Expectation, Rules
from roost.lab.policy.queue_order import count_ahead
from roost.lab.queue import task_lookup
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, LIVE, PENDING, Task
from roost.lab.scheduling.site_rules import read_rules
from roost.operations.live_lab.lab_change import (
    JournalLines,
    LabChange,
    LabSummary,
    PendingOrder,
    SweepChange,
    TaskRemoval,
    TaskRowChange,
)
from roost.operations.queue.expected_memory import expected_memory_on
from roost.operations.queue.list_tasks import reason_text, task_row
from roost.operations.queue.task_labels import TaskLabels
from roost.operations.task_results import TaskRow

MAX_ENDED = 100
"""Ended tasks that are shown, those that ended last; in addition all of a sweep that has unended tasks."""
_MAX_ENDED_READ = 300
"""The most recently submitted ended tasks, of which those that ended last are chosen: run times differ."""
_SWEEPS_PER_QUERY = 500
_REASONS_SECONDS, _ORDER_SECONDS, _SUMMARY_SECONDS = 0.5, 1.0, 1.0
"""The least time between two readings of the wait reasons, of the order, of the counts and the journal."""

JournalReader = Callable[[QueueStore, int | None], tuple[int, list[str], int]]
"""Returns the lines of a journal after an offset (None: the newest), the new offset, and the number that
changes when the journal is cleared, as offset, lines, number."""


class QueueWatch:
    """Follows an open queue.

    Args:
        store: The queue.
        read_journal: Reads the journal of the server; None: there is none.
    """

    def __init__(self, store: QueueStore, read_journal: JournalReader | None) -> None:
        self._store, self._read_journal = store, read_journal
        self.tasks: dict[str, Task] = {}
        """The tasks that are shown, by id."""
        self.changed: list[Task] = []
        """Those that the last call of `changes` found new or changed."""
        self.removed: list[str] = []
        """Those that it found no longer shown."""
        self.rules: Rules = read_rules(store)
        self.short: dict[str, str] = {}
        """The shortest unique prefixes of the ids of shown tasks."""
        self.order: tuple[str, ...] = ()
        """The ids of pending tasks, in the order in which they are considered."""
        self.revision = 0
        """Grows with each change of a task."""
        self._expectations = Expectations(store)
        self._rows: dict[str, TaskRow] = {}
        self._known: list[str] = []
        self._sweeps: set[str] = set()
        self._version: int | None = None
        self._seq = 0
        self._summary: LabSummary | None = None
        self._journal_offset: int | None = None
        self._cleared = 0
        self._next = dict.fromkeys(("reasons", "order", "summary"), 0.0)
        self._is_old = dict.fromkeys(("reasons", "order", "summary"), True)
        self._num_cards = 0

    def changes(self, now: float, cards: Sequence[Card]) -> Iterator[LabChange]:
        """Yields what has changed since the last call.

        Args:
            now: Monotonic seconds.
            cards: The cards of the machine.

        Raises:
            RoostError: The queue cannot be read.
        """
        self.changed, self.removed = [], []
        version = self._store.data_version()
        if version != self._version:
            self._version = version
            self._is_old = dict.fromkeys(self._is_old, True)
            self._num_cards = len(cards)
            yield from self._task_changes(cards)
        if len(cards) != self._num_cards:
            self._num_cards = len(cards)
            pending = [task for task in self.tasks.values() if task.state == PENDING and task.need.cards]
            yield from self._rows_of(pending, cards)
        if self._is_due("reasons", now, _REASONS_SECONDS):
            yield from self._reason_changes(cards)
        if self._is_due("order", now, _ORDER_SECONDS):
            yield from self._order_change()
        yield from self._summary_changes(now)

    def _is_due(self, part: str, now: float, seconds: float) -> bool:
        """Whether a part may have changed, and was not read a moment ago."""
        if not self._is_old[part] or now < self._next[part]:
            return False
        self._is_old[part], self._next[part] = False, now + seconds
        return True

    # --- tasks

    def _task_changes(self, cards: Sequence[Card]) -> Iterator[LabChange]:
        is_first = not self._seq
        self._seq, changed = self._store.tasks_since(self._seq)
        if changed is None:
            self._known = self._store.all_ids()
            found = {task.id: task for task in self._shown_tasks()}
            gone = [id for id in self.tasks if id not in found]
            changed = [task for task in found.values() if self.tasks.get(task.id) != task]
        else:
            gone, is_first = [], False
        for task in changed:
            self.tasks[task.id] = task
        lengthened = () if is_first else self._add_ids(changed)
        yield from self._sweep_changes(changed)
        yield from self._rows_of([*changed, *lengthened], cards)
        self.changed = changed
        self.revision += bool(changed)
        for id in (*gone, *self._surplus()):
            del self.tasks[id]
            self._rows.pop(id, None)
            self.short.pop(id, None)
            self.removed.append(id)
            yield TaskRemoval(id)

    def _shown_tasks(self) -> Iterator[Task]:
        """Yields the tasks that are shown, as the queue has them now."""
        store = self._store
        unended = store.tasks(states=(PENDING, *LIVE))
        yield from unended
        sweeps = sorted({task.sweep for task in unended if task.sweep is not None})
        ended = {task.id: task for task in store.tasks(states=ENDED, newest=_MAX_ENDED_READ)}
        last = sorted(ended.values(), key=_by_end)[-MAX_ENDED:]
        found = {task.id: task for task in last}
        for start in range(0, len(sweeps), _SWEEPS_PER_QUERY):
            some = store.tasks(states=ENDED, sweeps=sweeps[start : start + _SWEEPS_PER_QUERY])
            found |= {task.id: task for task in some}
        yield from found.values()

    def _surplus(self) -> list[str]:
        """Returns the ids of ended tasks that are too many to be shown."""
        if len(self.tasks) <= MAX_ENDED:
            return []
        ended = [task for task in self.tasks.values() if task.state in ENDED]
        if len(ended) <= MAX_ENDED:
            return []
        sweeps = {task.sweep for task in self.tasks.values() if task.state not in ENDED}
        first = sorted(ended, key=_by_end)[:-MAX_ENDED]
        return [task.id for task in first if task.sweep is None or task.sweep not in sweeps]

    def _add_ids(self, changed: Iterable[Task]) -> list[Task]:
        """Adds new ids to the known ones; returns the shown tasks whose unique prefix has become longer."""
        found: dict[str, Task] = {}
        for id in {id for task in changed for id in (task.id, task.sweep) if id is not None}:
            place = bisect_left(self._known, id)
            if self._known[place : place + 1] == [id]:
                continue
            insort(self._known, id)
            for neighbour in (*self._known[max(0, place - 1) : place], *self._known[place + 1 : place + 2]):
                if neighbour in self.tasks:
                    found[neighbour] = self.tasks[neighbour]
        return [
            task
            for id, task in found.items()
            if self.short.get(id) != task_lookup.unique_prefix(self._known, id)
        ]

    def _rows_of(self, tasks: Sequence[Task], cards: Sequence[Card]) -> Iterator[LabChange]:
        """Yields the rows of tasks, as far as they have changed."""
        if not tasks:
            return
        labels = TaskLabels(self._store, (task.reason for task in tasks))
        waiting = [task for task in tasks if task.state == PENDING and task.need.cards]
        memory = expected_memory_on(cards, waiting, self._expectations, self.rules) if waiting else {}
        for task in tasks:
            self.short[task.id] = short = task_lookup.unique_prefix(self._known, task.id)
            row = task_row(task, short=short, reason=reason_text(task, labels), expected=memory.get(task.id))
            if self._rows.get(task.id) != row:
                self._rows[task.id] = row
                yield TaskRowChange(row)

    def _sweep_changes(self, changed: Iterable[Task]) -> Iterator[LabChange]:
        new = {task.sweep for task in changed if task.sweep is not None} - self._sweeps
        if not new:
            return
        self._sweeps |= new
        sizes = self._store.sweep_sizes()
        for id in sorted(new):
            yield SweepChange(id, task_lookup.unique_prefix(self._known, id), sizes.get(id, 0))

    def _reason_changes(self, cards: Sequence[Card]) -> Iterator[LabChange]:
        """Yields the pending tasks whose wait reason has changed, which is no event of the queue."""

        found = []
        for id, reason in self._store.wait_reasons().items():
            task = self.tasks.get(id)
            if task is not None and task.state == PENDING and task.reason != reason:
                self.tasks[id] = changed = msgspec.structs.replace(task, reason=reason)
                found.append(changed)
        yield from self._rows_of(found, cards)

    # --- order and summary

    def _order_change(self) -> Iterator[LabChange]:

        self.rules = read_rules(self._store)
        pending = [task for task in self.tasks.values() if task.state == PENDING]
        places = count_ahead(pending, time.time(), self.rules)
        order = tuple(sorted(places, key=places.__getitem__))
        left = tuple(id for id in self.order if id in places)
        if order != left:
            yield PendingOrder(ids=order)
        self.order = order

    def expected(self, tasks: Sequence[Task], cards: Sequence[Card]) -> Mapping[str, Expectation]:
        """Returns the predicted memory and run times of tasks."""
        return self._expectations.for_tasks(tasks, cards, self.rules)

    def _summary_changes(self, now: float) -> Iterator[LabChange]:
        if now < self._next["summary"]:
            return
        self._next["summary"] = now + _SUMMARY_SECONDS
        record = daemon_presence.find_daemon(self._store.folder)
        counts = None if self._summary is None else self._summary.counts
        if counts is None or self._is_old["summary"]:
            self._is_old["summary"] = False
            counts = self._store.state_counts()
            yield from self._journal_changes()
        summary = LabSummary(daemon=None if record is None else record.pid, counts=counts)
        if summary != self._summary:
            self._summary = summary
            yield summary

    def _journal_changes(self) -> Iterator[LabChange]:
        if self._read_journal is None:
            return
        offset, lines, cleared = self._read_journal(self._store, self._journal_offset)
        is_cleared = cleared != self._cleared
        self._journal_offset, self._cleared = offset, cleared
        if lines or is_cleared:
            yield JournalLines(lines=lines, cleared=is_cleared)


def _by_end(task: Task) -> tuple[float, str]:
    return task.ended or 0.0, task.id
