"""``why``: why a task waits, or how it ended, and what happened to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from roost.base.system import state_folder
from roost.base.text.byte_sizes import format_memory
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import format_clock
from roost.base.text.word_list import join_names
from roost.lab.background import daemon_presence
from roost.lab.policy.reason_codes import is_hopeless
from roost.lab.queue.history import Event
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import ENDED, PENDING, RUNNING, STARTING, STOPPED, SUCCEEDED, Task
from roost.lab.queue.task_states import ASKED
from roost.operations import resolve
from roost.operations.queue.list_tasks import card_numbers
from roost.operations.queue.task_labels import TaskLabels
from roost.package import sessions


class TaskEvent(msgspec.Struct, frozen=True):
    """One thing that happened to a task."""

    at: float
    kind: str
    text: str


class TaskExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a task."""

    id: str
    name: str
    package: str
    state: str
    reason: str
    """As `roost tasks --json` tells it; may be empty."""
    why: str
    """One line; never empty."""
    command: list[str]
    """Of a command of the user, with its arguments; else empty."""
    can_go_on: bool
    """Whether `roost continue` would go on where it ended: a training that did not succeed, with which nobody
    has gone on since."""
    events: list[TaskEvent]
    """The oldest first; the oldest of all tasks' are forgotten."""


def why(text: str) -> list[TaskExplanation]:
    """What is known of the task that is meant; of a sweep, of each.

    Args:
        text: Its id, the beginning of one, its name, or the path of its package.

    Raises:
        NotFound: There is none.
        UsageError: It may mean several.
        Refused: The queue cannot be opened.
    """
    tasks = resolve.tasks(text)
    is_watched = daemon_presence.about(state_folder.lab_folder()) is not None
    numbers = card_numbers(tasks)
    with Store.open() as store:
        events = {task.id: store.events(task=task.id) for task in tasks}
        texts = [text for task in tasks for text in (task.reason, *(event.text for event in events[task.id]))]
        told = TaskLabels(store, [*texts, *(task.id for task in tasks)])
    return [_explanation(task, events[task.id], numbers, told, is_watched=is_watched) for task in tasks]


def _explanation(
    task: Task, events: list[Event], numbers: Mapping[str, int], told: TaskLabels, *, is_watched: bool
) -> TaskExplanation:
    line = told.said(_state_line(task, numbers)) + _guard_note(task)
    if task.need.opportunistic and task.state not in ENDED:
        line += "; it is opportunistic: it makes room for others"
    if not is_watched and task.state not in ENDED:
        line += "; nobody looks after it: `roost lab start`"
    return TaskExplanation(
        id=task.id,
        name=task.name,
        package=task.package,
        state=task.state,
        reason=told.said(task.reason),
        why=line,
        command=list(task.plan["argv"]) if task.plan.get("is_command") else [],
        can_go_on=_can_continue(task),
        events=[TaskEvent(event.at, event.kind, told.said(event.text)) for event in events],
    )


def _guard_note(task: Task) -> str:
    """What became of the process that watches over the session, if somebody killed that alone."""
    if task.session is None or task.state == PENDING:
        return ""
    record = sessions.load_json(Path(task.package) / "sessions" / f"{task.session}.json") or {}
    lost = sessions.unix_seconds(record.get("guard_lost"))
    if lost is None:
        return ""
    went = "went" if task.state in ENDED else "goes"
    return f"; its guard was killed at {format_clock(lost, seconds=True)}, and it {went} on unwatched"


def _can_continue(task: Task) -> bool:
    if task.state not in ENDED or task.state == SUCCEEDED or task.session is None:
        return False
    package = Path(task.package)
    later = package / "sessions" / f"{task.session + 1}.request.json"
    kind = (sessions.load_json(package / "request.json") or {}).get("kind", "command")
    return kind != "command" and not later.exists()


def _state_line(task: Task, numbers: Mapping[str, int]) -> str:
    if task.state == PENDING:
        hint = f" (`roost stop {task.id}` takes it out of the queue)" if is_hopeless(task.reason) else ""
        return f"{task.reason}{hint}" if task.reason else "the lab has not looked at it yet"
    if task.state in ENDED:
        return _end_line(task)
    cards = [f"GPU {numbers[card]}" if card in numbers else card for card in task.cards]
    on = join_names(cards) or task.need.cores_in_words
    where = f"on {on}" if on else "without a card"
    if task.reserved_mb is not None:
        where = f"with {format_memory(task.reserved_mb)} {where}"
    if task.stop_asked:
        return f"{task.state} {where}: it was asked {ASKED[task.stop_asked]}"
    if task.state in (STARTING, RUNNING):
        began = f" since {format_clock(task.started)}" if task.started is not None else ""
        return f"{task.state} {where}{began}, attempt {task.attempt}"
    return f"{task.state} {where}: it saves and ends"


def _end_line(task: Task) -> str:
    told = [task.reason] if task.reason else []
    if not told and task.state != SUCCEEDED and task.exit_code is not None:
        told.append(f"exit code {task.exit_code}")
    if task.started is not None and task.ended is not None:
        told.append(f"it ran for {format_duration(max(0.0, task.ended - task.started))}")
    if not told:
        told.append("somebody asked it to" if task.state == STOPPED else f"attempt {task.attempt}")
    ended = f" at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(task.ended))}" if task.ended else ""
    return f"{task.state}{ended}: {'; '.join(told)}"
