"""The operation ``tasks``: pending and live tasks, and the last ones that have ended."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, LIVE, PENDING, RUNNING, STOPPING, Task
from roost.operations import resolve
from roost.operations.queue.task_labels import TaskLabels
from roost.operations.task_results import Sweep, TaskRow
from roost.package import live_progress, sessions
from roost.package.live_progress import ProgressRecord
from roost.package.remote import remote_status

if TYPE_CHECKING:
    from roost.lab.memory.memory_prediction import MemoryReservation

_MAX_ENDED = 5
"""A sweep counts as one."""
_MAX_ENDED_READ = 100
"""The most recently submitted ended tasks, of which those that ended last are chosen: run times differ."""
_SWEEPS_PER_QUERY = 500
REMOVED_NOTE = "its package was removed"


def list_tasks(
    *,
    all_tasks: bool = False,
    states: Sequence[str] = (),
    user: str | None = None,
    max_pending: int | None = None,
) -> list[TaskRow]:
    """Returns the tasks of the queue in the order of submission.

    Args:
        all_tasks: Whether to include all ended tasks; otherwise the last few, and whole sweeps.
        states: Only tasks in these states, however old.
        user: Only tasks of this user.
        max_pending: Limits the pending tasks to the first ones where neither of the first two is given; a
            sweep counts as one. None: no limit.

    Raises:
        Refused: The queue cannot be opened.
    """
    if not database.has_existed(state_folder.lab_folder()):
        return []
    with QueueStore.open() as store:
        if all_tasks or states:
            found = store.tasks(states=states or None, user=user)
        else:
            found = _recent_tasks(store, user, max_pending)
        short = store.unique_prefixes(id for task in found for id in (task.id, task.sweep) if id)
        labels = TaskLabels(store, (task.reason for task in found))
        memory = read_expected_memory(store, found)
    now = time.time()
    return [
        task_row(
            task,
            short=short[task.id],
            reason=reason_text(task, labels),
            expected=memory.get(task.id),
            progress=read_progress(task, now),
        )
        for task in found
    ]


def reason_text(task: Task, labels: TaskLabels) -> str:
    """Returns why a task is pending, or did not succeed, for people."""
    parts = [labels.replace_ids(task.reason)] if task.reason else []
    if resolve.is_removed(task) and REMOVED_NOTE not in (task.reason or ""):
        parts.append(REMOVED_NOTE)
    return "; ".join(parts)


def read_expected_memory(store: QueueStore, tasks: Sequence[Task]) -> dict[str, MemoryReservation]:
    """Returns the memory that the pending tasks among these will get of each card, by id; without those that
    have no cards."""
    waiting = [task for task in tasks if task.state == PENDING and task.need.cards]
    if not waiting:  # saves the imports and the query of the driver
        return {}
    from roost.operations.queue.expected_memory import expected_memory

    return expected_memory(store, waiting)


def count_hidden(rows: Sequence[TaskRow], user: str | None = None) -> tuple[int, int]:
    """Returns how many pending and how many ended tasks are not in a list.

    Args:
        rows: The list.
        user: Count only tasks of this user.

    Raises:
        Refused: The queue cannot be opened.
    """
    with QueueStore.open() as store:
        counts = store.state_counts(user=user)
    waiting, ended = (
        sum(counts.get(state, 0) for state in states) - sum(row.state in states for row in rows)
        for states in ((PENDING,), ENDED)
    )
    return waiting, ended


def card_numbers(rows: Sequence[TaskRow | Task]) -> dict[str, int]:
    """Returns the numbers by which `roost devices` shows the cards of these tasks. A card that the driver
    does not list has none."""
    leased = {card for row in rows for card in row.cards}
    if not leased:  # saves the query of the driver
        return {}
    from roost.devices import inventory  # imported late: most lists have no cards

    try:
        return {card.id: card.number for card in inventory.read_cards() if card.id in leased}
    except RoostError:
        return {}


def group_sweeps(rows: Sequence[TaskRow]) -> list[TaskRow | Sweep]:
    """Returns the list with the tasks of a sweep as one entry at the place of the first, unless only one of
    its tasks is listed.

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
    with QueueStore.open() as store:
        short, sizes = store.unique_prefixes(sweeps), store.sweep_sizes()
    found: list[TaskRow | Sweep] = []
    for row in rows:
        if row.sweep is None or row.sweep not in sweeps:
            found.append(row)
        elif row is sweeps[row.sweep][0]:
            tasks = tuple(sweeps[row.sweep])
            total = sizes.get(row.sweep, len(tasks))
            found.append(Sweep(id=row.sweep, short=short[row.sweep], tasks=tasks, total=total))
    return found


def wait_without_daemon(rows: Sequence[TaskRow]) -> bool:
    """Whether a task has not ended and no daemon is running."""
    return (
        any(row.state not in ENDED for row in rows)
        and daemon_presence.find_daemon(state_folder.lab_folder()) is None
    )


def _recent_tasks(store: QueueStore, user: str | None, max_pending: int | None) -> list[Task]:
    ended = store.tasks(states=ENDED, user=user, newest=_MAX_ENDED_READ)
    last: dict[str, Task] = {}
    for task in sorted(ended, key=lambda task: task.ended or 0.0, reverse=True):
        if len(last) < _MAX_ENDED:
            last.setdefault(task.sweep or task.id, task)
    waiting = store.tasks(states=[PENDING], user=user, oldest=max_pending)
    found = {task.id: task for task in (*waiting, *store.tasks(states=LIVE, user=user), *last.values())}
    sweeps = sorted({task.sweep for task in found.values() if task.sweep is not None})
    # Of a sweep: without a limit its unended tasks are in the list already.
    states = ENDED if max_pending is None else None
    for start in range(0, len(sweeps), _SWEEPS_PER_QUERY):
        some = store.tasks(states=states, sweeps=sweeps[start : start + _SWEEPS_PER_QUERY], user=user)
        found |= {task.id: task for task in some}
    return sorted(found.values(), key=lambda task: (task.submitted, task.id))


class ProgressDetails(NamedTuple):
    """The progress of a running training."""

    record: ProgressRecord
    left: float | None
    """Seconds until the end, estimated from the speed so far, or until the session must have ended; None: not
    known."""
    last_step: int | None = None
    """The step at which the session will end, about, if the run does not finish in it."""
    durability: str | None = None
    """How far the remote copy is, in one line; None: there is none."""


def task_row(
    task: Task,
    *,
    short: str,
    reason: str,
    expected: MemoryReservation | None = None,
    progress: ProgressDetails | None = None,
) -> TaskRow:
    """Returns the row of a task.

    Args:
        task: The task.
        short: The shortest unique prefix of its id.
        reason: As `reason_text` returns it.
        expected: The memory that it will get, if it is pending and has cards.
        progress: As `read_progress` returns it.
    """
    need = task.need
    requested_mb = need.memory_mb if expected is None else expected.mb
    return TaskRow(
        short=short,
        label=task.label,
        num_cards=need.cards,
        cores=need.cores,
        host_memory_mb=need.host_memory_mb,
        memory_mb=task.reserved_mb if task.cards else requested_mb,
        reason=reason,
        whole=need.whole,
        time_limit=need.time_limit,
        opportunistic=need.opportunistic,
        step=None if progress is None else progress.record.step,
        total_steps=None if progress is None else progress.record.total_steps or None,
        left=None if progress is None else progress.left,
        last_step=None if progress is None else progress.last_step,
        durability=None if progress is None else progress.durability,
        **dict(zip(_COMMON_FIELDS, _common_values(task), strict=True)),
    )


def read_progress(task: Task, now: float) -> ProgressDetails | None:
    """Reads the progress record of a running training; None if the task has none."""
    if task.state not in (RUNNING, STOPPING):
        return None
    record = live_progress.read(task.folder / "progress")
    return progress_details(task, record, now, deadline=read_deadline(task))


def read_deadline(task: Task) -> float | None:
    """Returns by when the session of a running task must have ended, in Unix seconds; None: no limit."""
    by_request = None
    if task.need.time_limit is not None and task.started is not None:
        by_request = task.started + task.need.time_limit
    record = sessions.load_record(task.folder / "sessions" / f"{task.session}.json")
    recorded = None if record is None else sessions.unix_seconds(record.deadline)
    return min((at for at in (by_request, recorded) if at is not None), default=None)


def progress_details(
    task: Task, record: ProgressRecord | None, now: float, *, deadline: float | None
) -> ProgressDetails | None:
    """Returns the progress that a record of a running training shows; None if it is of an earlier attempt.

    Args:
        task: The task.
        record: The progress record of its session folder.
        now: Unix seconds.
        deadline: As `read_deadline` returns it.
    """
    if record is None or task.started is None or record.wall < task.started:  # of the attempt before
        return None
    left = record.seconds * (1 / record.fraction - 1) if 0 < record.fraction <= 1 else math.inf
    last_step = None
    if deadline is not None:
        to_end = max(0.0, deadline - now)
        if math.isfinite(left):
            last_step = live_progress.last_step(record, seconds_to_finish=left, seconds_to_end=to_end)
        left = min(left, to_end)
    status = remote_status.read(task.folder)
    durability = None if status is None else remote_status.describe(status)
    return ProgressDetails(record, left if math.isfinite(left) else None, last_step, durability)


_COMMON_FIELDS = [
    name for name in TaskRow.__struct_fields__ if name in Task.__struct_fields__ and name != "reason"
]
_common_values = attrgetter(*_COMMON_FIELDS)
