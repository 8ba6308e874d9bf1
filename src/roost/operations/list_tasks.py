"""``tasks``: what waits and runs, and what has ended last."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from roost.lab import place, presence
from roost.lab.store import Store
from roost.lab.task import ENDED, LIVE, PENDING, Task
from roost.operations import meant

STATES = (PENDING, *LIVE, *ENDED)
_MOST_ENDED = 5
"""A sweep counts as one."""
_LOOKED_AT = 100
"""So many that have ended are looked at for those that did last: some take longer than others."""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    id: str
    short: str
    """As much of the id as tells it from all others."""
    name: str
    package: str
    user: str
    state: str
    reason: str
    """Why it waits, or did not succeed."""
    priority: int
    held: bool
    after: tuple[str, ...]
    array: str | None
    """The sweep that it is one of."""
    num_cards: int
    memory_mb: int | None
    """Of each card: that it has, or asks for; None: the whole."""
    cards: tuple[str, ...]
    """That it has."""
    attempt: int
    session: int | None
    stop_asked: str
    submitted: float
    begin: float | None
    started: float | None
    ended: float | None
    exit_code: int | None

    def seconds(self, now: float) -> float:
        """How long it has waited, runs, or ran."""
        if self.started is None:
            return max(0.0, (self.ended or now) - self.submitted)
        return max(0.0, (self.ended or now) - self.started)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one sweep, together."""

    id: str
    short: str
    tasks: tuple[TaskRow, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many are in each state, of those that some are in."""
        states = [task.state for task in self.tasks]
        return {state: states.count(state) for state in (*LIVE, PENDING, *ENDED) if state in states}


def list_tasks(
    *, all_of_them: bool = False, states: Sequence[str] = (), user: str | None = None
) -> list[TaskRow]:
    """The tasks of the queue, in the order in which they were submitted.

    Args:
        all_of_them: Those too that have ended long ago; else the last few, and whole sweeps.
        states: Only those of these, however long ago.
        user: Only his.

    Raises:
        Refused: The queue cannot be opened.
    """
    if not meant.has_queue():
        return []
    with Store.open() as store:
        if all_of_them or states:
            found = store.tasks(states=states or None, user=user)
        else:
            found = _newer(store, user)
        short = store.beginnings([id for task in found for id in (task.id, task.array) if id])
    return [_row(task, short[task.id]) for task in found]


def folded(rows: Sequence[TaskRow]) -> list[TaskRow | Sweep]:
    """The same, with the tasks of a sweep together where its first one was.

    Raises:
        Refused: The queue cannot be opened.
    """
    sweeps: dict[str, list[TaskRow]] = {}
    for row in rows:
        if row.array is not None:
            sweeps.setdefault(row.array, []).append(row)
    if not sweeps:
        return list(rows)
    with Store.open() as store:
        short = store.beginnings(sweeps)
    found: list[TaskRow | Sweep] = []
    for row in rows:
        if row.array is None:
            found.append(row)
        elif row is sweeps[row.array][0]:
            found.append(Sweep(id=row.array, short=short[row.array], tasks=tuple(sweeps[row.array])))
    return found


def needs_daemon(rows: Sequence[TaskRow]) -> bool:
    """Whether one of them has not ended, and nobody looks after it."""
    return any(row.state not in ENDED for row in rows) and presence.about(place.folder()) is None


def _newer(store: Store, user: str | None) -> list[Task]:
    ended = store.tasks(states=ENDED, user=user, newest=_LOOKED_AT)
    last: dict[str, Task] = {}
    for task in sorted(ended, key=lambda task: task.ended or 0.0, reverse=True):
        if len(last) < _MOST_ENDED:
            last.setdefault(task.array or task.id, task)
    found = {task.id: task for task in (*store.tasks(states=(PENDING, *LIVE), user=user), *last.values())}
    for array in {task.array for task in found.values() if task.array is not None}:
        found |= {task.id: task for task in store.tasks(array=array, user=user)}
    return sorted(found.values(), key=lambda task: (task.submitted, task.id))


def _row(task: Task, short: str) -> TaskRow:
    return TaskRow(
        short=short,
        num_cards=task.need.cards,
        memory_mb=task.reserved_mb if task.cards else task.need.memory_mb,
        **{name: getattr(task, name) for name in _SAME},
    )


_SAME = [field for field in TaskRow.__struct_fields__ if field not in ("short", "num_cards", "memory_mb")]
