"""``tasks``: what waits and runs, and what has ended last."""

from __future__ import annotations

import math
import os.path
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.policy.reason_codes import HELD
from roost.lab.queue import database
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import ENDED, LIVE, PENDING, RUNNING, STOPPING, Task
from roost.operations.queue.task_labels import TaskLabels
from roost.package import live_progress

_MAX_ENDED = 5
"""A sweep counts as one."""
_MAX_ENDED_READ = 100
"""So many that have ended are looked at for those that did last: some take longer than others."""
_SWEEPS_PER_QUERY = 500
"""In one question to the queue."""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    """Those that must have succeeded before."""
    after_any: tuple[str, ...]
    """Those that must have ended before, however."""
    sweep: str | None
    """The sweep that it is one of."""
    sweep_name: str | None
    """What that is called; None: by what its tasks are called together."""
    num_cards: int
    cores: int | None
    """Of the CPU, of a task without cards; None: it counts as one."""
    memory_mb: int | None
    """Of each card: that it has, or asks for; None: the whole."""
    whole: bool
    """Whether it is to share its cards with nobody."""
    time_limit: float | None
    """Seconds."""
    opportunistic: bool
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
    step: int | None = None
    """Of a training that runs: where it is. Like the next two None where that is not known (yet)."""
    total_steps: int | None = None
    left: float | None = None
    """Seconds that it still takes, by its pace so far, or until its time limit."""

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
    """At least two; of a list of some states, or of one user, not all."""
    total: int
    """How many it has."""

    def seconds(self, now: float) -> float:
        """How long it takes since it was submitted, until the last of its tasks has ended."""
        ends = [now if task.ended is None else task.ended for task in self.tasks]
        return max(0.0, max(ends) - min(task.submitted for task in self.tasks))

    @property
    def name(self) -> str:
        """That it was given; else what all are called by, up to the key whose values differ first: ``lr`` of
        ``lr-1e-3`` and ``lr-1e-4``."""
        if (given := self.tasks[0].sweep_name) is not None:
            return given
        common = os.path.commonprefix([task.name for task in self.tasks])  # noqa: RUF071  - they are no paths
        before, line, last = common.rpartition("_")
        return f"{before}{line}{last.partition('-')[0]}".rstrip("_")

    @property
    def reason(self) -> str:
        """Why those wait that do, all that are held back first; as of one of the others."""
        waits = [task for task in self.tasks if task.state == PENDING]
        held = sum(task.held for task in waits)
        other = next((task.reason for task in waits if not task.held), "")
        if not held:
            return other
        count = f"{held} of them " if other else ""
        hint = f"{HELD}: {count}until somebody releases them (roost release {self.short})"
        return f"{hint}; {other}" if other else hint

    @property
    def counts(self) -> dict[str, int]:
        """How many are in each state, of those that some are in."""
        states = [task.state for task in self.tasks]
        return {state: states.count(state) for state in (*LIVE, PENDING, *ENDED) if state in states}


def list_tasks(
    *,
    all_tasks: bool = False,
    states: Sequence[str] = (),
    user: str | None = None,
    max_pending: int | None = None,
) -> list[TaskRow]:
    """The tasks of the queue, in the order in which they were submitted.

    Args:
        all_tasks: Those too that have ended long ago; else the last few, and whole sweeps.
        states: Only those of these, however long ago.
        user: Only his.
        max_pending: Without the two above: so many of those that wait, the first ones; a sweep counts as
            one. All when None.

    Raises:
        Refused: The queue cannot be opened.
    """
    if not database.was_made(state_folder.lab_folder()):
        return []
    with Store.open() as store:
        if all_tasks or states:
            found = store.tasks(states=states or None, user=user)
        else:
            found = _recent_tasks(store, user, max_pending)
        short = store.beginnings(id for task in found for id in (task.id, task.sweep) if id)
        told = TaskLabels(store, (task.reason for task in found))
    now = time.time()
    return [_row(task, short, told.said(task.reason) if task.reason else "", now) for task in found]


def count_hidden(rows: Sequence[TaskRow], user: str | None = None) -> tuple[int, int]:
    """How many more tasks there are, of one user or of all: of those that wait, and of those that have ended.

    Args:
        rows: All that is shown.
        user: Whose count.

    Raises:
        Refused: The queue cannot be opened.
    """
    with Store.open() as store:
        counts = store.counts(user=user)
    waiting, ended = (
        sum(counts.get(state, 0) for state in states) - sum(row.state in states for row in rows)
        for states in ((PENDING,), ENDED)
    )
    return waiting, ended


def card_numbers(rows: Sequence[TaskRow | Task]) -> dict[str, int]:
    """By what numbers people know the cards that these tasks have: those of `roost devices`. A card that the
    driver does not report of has none."""
    held = {card for row in rows for card in row.cards}
    if not held:  # the driver is not asked for nothing
        return {}
    from roost.devices import inventory  # most lists have no cards, and do not wait for it

    try:
        return {card.id: card.number for card in inventory.read_cards() if card.id in held}
    except RoostError:
        return {}


def group_sweeps(rows: Sequence[TaskRow]) -> list[TaskRow | Sweep]:
    """The same, with the tasks of a sweep together where its first one was, unless that is the only one.

    Raises:
        Refused: The queue cannot be opened.
    """
    sweeps: dict[str, list[TaskRow]] = {}
    for row in rows:
        if row.sweep is not None:
            sweeps.setdefault(row.sweep, []).append(row)
    sweeps = {sweep: tasks for sweep, tasks in sweeps.items() if len(tasks) > 1}
    if not sweeps:
        return list(rows)
    with Store.open() as store:
        short, sizes = store.beginnings(sweeps), store.sizes()
    found: list[TaskRow | Sweep] = []
    for row in rows:
        if row.sweep is None or row.sweep not in sweeps:
            found.append(row)
        elif row is sweeps[row.sweep][0]:
            tasks = tuple(sweeps[row.sweep])
            total = sizes.get(row.sweep, len(tasks))
            found.append(Sweep(id=row.sweep, short=short[row.sweep], tasks=tasks, total=total))
    return found


def needs_daemon(rows: Sequence[TaskRow]) -> bool:
    """Whether one of them has not ended, and nobody looks after it."""
    return (
        any(row.state not in ENDED for row in rows)
        and daemon_presence.about(state_folder.lab_folder()) is None
    )


def _recent_tasks(store: Store, user: str | None, max_pending: int | None) -> list[Task]:
    ended = store.tasks(states=ENDED, user=user, newest=_MAX_ENDED_READ)
    last: dict[str, Task] = {}
    for task in sorted(ended, key=lambda task: task.ended or 0.0, reverse=True):
        if len(last) < _MAX_ENDED:
            last.setdefault(task.sweep or task.id, task)
    waiting = store.tasks(states=[PENDING], user=user, oldest=max_pending)
    found = {task.id: task for task in (*waiting, *store.tasks(states=LIVE, user=user), *last.values())}
    sweeps = sorted({task.sweep for task in found.values() if task.sweep is not None})
    left = ENDED if max_pending is None else None  # of a sweep, if all that wait and live are there already
    for start in range(0, len(sweeps), _SWEEPS_PER_QUERY):
        some = store.tasks(states=left, sweeps=sweeps[start : start + _SWEEPS_PER_QUERY], user=user)
        found |= {task.id: task for task in some}
    return sorted(found.values(), key=lambda task: (task.submitted, task.id))


def _row(task: Task, short: Mapping[str, str], reason: str, now: float) -> TaskRow:
    need = task.need
    return TaskRow(
        short=short[task.id],
        num_cards=need.cards,
        cores=need.cores,
        memory_mb=task.reserved_mb if task.cards else need.memory_mb,
        reason=reason,
        whole=need.whole,
        time_limit=need.time_limit,
        opportunistic=need.opportunistic,
        **(_progress(task, now) if task.state in (RUNNING, STOPPING) else {}),
        **dict(zip(_COMMON_FIELDS, _common_values(task), strict=True)),
    )


def _progress(task: Task, now: float) -> dict[str, Any]:
    """Where a training is, as its worker tells it."""
    seen = live_progress.read(Path(task.package) / "progress")
    if seen is None or task.started is None or seen.wall < task.started:  # of the attempt before
        return {}
    left = seen.seconds * (1 / seen.fraction - 1) if 0 < seen.fraction <= 1 else math.inf
    if task.need.time_limit is not None:
        left = min(left, max(0.0, task.started + task.need.time_limit - now))
    return {
        "step": seen.step,
        "total_steps": seen.total_steps or None,
        "left": left if math.isfinite(left) else None,
    }


_COMMON_FIELDS = [
    name for name in TaskRow.__struct_fields__ if name in Task.__struct_fields__ and name != "reason"
]
_common_values = attrgetter(*_COMMON_FIELDS)
