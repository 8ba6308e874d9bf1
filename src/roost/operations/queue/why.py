"""The operation ``why``: the reason why a task is pending, or how it ended, and its events."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from pathlib import Path

from roost.base.errors import NotFound
from roost.base.system import state_folder
from roost.base.text.byte_sizes import format_memory
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import format_clock
from roost.base.text.word_list import join_names
from roost.devices.resource_request import format_card_share
from roost.lab.background import daemon_presence
from roost.lab.memory.memory_prediction import MemoryReservation
from roost.lab.policy.queue_order import count_ahead
from roost.lab.policy.start_conditions import can_never_start
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, PENDING, RUNNING, STARTING, STOPPED, SUCCEEDED, Task
from roost.lab.queue.task_states import STOP_REQUESTS
from roost.lab.scheduling.site_rules import read_rules
from roost.operations import resolve
from roost.operations.queue.list_tasks import REMOVED_NOTE, card_numbers, read_expected_memory
from roost.operations.queue.task_labels import TaskLabels
from roost.operations.task_results import TaskEvent, TaskExplanation
from roost.package import session_folder, sessions
from roost.package.program_request import ProgramRequest
from roost.package.remote import remote_status


def why(text: str) -> list[TaskExplanation]:
    """Explains the named task, or each task of the named sweep.

    Args:
        text: An id or the beginning of one, a label, a name, or the path of a package.

    Raises:
        NotFound: There is no such task.
        UsageError: The text fits several tasks.
        Refused: The queue cannot be opened.
    """
    tasks = resolve.find_tasks(text)
    is_watched = daemon_presence.find_daemon(state_folder.lab_folder()) is not None
    numbers = card_numbers(tasks)
    with QueueStore.open() as store:
        events = {task.id: store.events(task=task.id) for task in tasks}
        texts = [text for task in tasks for text in (task.reason, *(event.text for event in events[task.id]))]
        labels = TaskLabels(store, [*texts, *(task.id for task in tasks)])
        read_task = functools.cache(functools.partial(_find_task, store))
        pending = [task for task in tasks if task.state == PENDING]
        memory = read_expected_memory(store, tasks)
        ahead = count_ahead(store.tasks(states=[PENDING]), time.time(), read_rules(store)) if pending else {}
        never_starting = {task.id for task in pending if can_never_start(task, read_task)}
    return [
        _explanation(
            task,
            events[task.id],
            labels,
            _state_line(task, numbers, never_starts=task.id in never_starting, expected=memory.get(task.id)),
            ahead=ahead.get(task.id),
            is_watched=is_watched,
        )
        for task in tasks
    ]


def waits_for_lost_daemon(text: str) -> bool:
    """Whether the named task, or one of the named sweep, waits for a daemon that was killed.

    Raises:
        NotFound, UsageError, Refused: As `why`.
    """
    is_lost = daemon_presence.is_lost(state_folder.lab_folder())
    return is_lost and any(task.state not in ENDED for task in resolve.find_tasks(text))


def _find_task(store: QueueStore, id: str) -> Task | None:
    try:
        return store.task(id)
    except NotFound:
        return None


def _explanation(
    task: Task,
    events: list[QueueEvent],
    labels: TaskLabels,
    state_line: str,
    *,
    ahead: int | None,
    is_watched: bool,
) -> TaskExplanation:
    line = (
        labels.replace_ids(state_line) + _guard_note(task) + _durability_note(task) + _place_note(task, ahead)
    )
    if resolve.is_removed(task) and REMOVED_NOTE not in line:
        line += f"; {REMOVED_NOTE}"
    if task.need.opportunistic and task.state not in ENDED:
        line += "; it is opportunistic: it gives way to other tasks"
    if task.plan.get("is_command") and task.state not in ENDED:
        line += _restart_note(task)
    if not is_watched and task.state not in ENDED:
        line += "; no daemon is running: `roost lab start`"
    return TaskExplanation(
        id=task.id,
        label=task.label,
        name=task.name,
        kind=task.kind,
        package=task.package,
        session_folder=task.session_folder,
        state=task.state,
        priority=task.priority,
        ahead=ahead,
        reason=labels.replace_ids(task.reason),
        why=line,
        command=_command(task),
        can_go_on=_can_continue(task),
        events=[TaskEvent(event.at, event.kind, labels.replace_ids(event.text)) for event in events],
    )


def _command(task: Task) -> list[str]:
    """Returns the command line of a program; empty for other tasks."""
    if not task.plan.get("is_command"):
        return []
    return list(task.plan.get("request", {}).get("command") or task.plan["argv"])


def _place_note(task: Task, ahead: int | None) -> str:
    """Returns the priority of a pending task, and its place in the queue if it has one."""
    if task.state != PENDING:
        return ""
    place = {None: "", 0: ", no task is ahead of it", 1: ", 1 task is ahead of it"}
    return f"; priority {task.priority}{place.get(ahead, f', {ahead} tasks are ahead of it')}"


def _restart_note(task: Task) -> str:
    """Returns when a program is started again, and from where."""
    if task.need.no_restart:
        return "; it never begins again (--no-restart)"
    lost = "the machine or the processes that supervise it crash"
    begin = "from its own checkpoint" if _resumes(task) else "from its start"
    return f"; if {lost}, it begins again {begin} (unless submitted with --no-restart)"


def _resumes(task: Task) -> bool:
    request = sessions.load_json(Path(task.package) / "request.json") or {}
    return bool(ProgramRequest.of(request).resume_with)


def _guard_note(task: Task) -> str:
    """Returns a note if the session's guard was killed while the session continued without it."""
    if task.session is None or task.state == PENDING:
        return ""
    record = sessions.load_record(task.folder / session_folder.FOLDER / f"{task.session}.json")
    lost = sessions.unix_seconds(record.guard_lost) if record is not None else None
    if lost is None:
        return ""
    continued = "continued" if task.state in ENDED else "continues"
    return f"; its guard was killed at {format_clock(lost, seconds=True)}, and it {continued} without one"


def _durability_note(task: Task) -> str:
    """Returns how far the remote copy of a task's package is; empty without one."""
    status = remote_status.read(Path(task.package)) if task.traits.locks_package else None
    return "" if status is None else f"; its remote copy is {remote_status.describe(status)}"


def _can_continue(task: Task) -> bool:
    if task.state not in ENDED or task.state == SUCCEEDED or task.session is None:
        return False
    if not task.traits.locks_package:
        return False
    package = Path(task.package)
    later = package / "sessions" / f"{task.session + 1}.request.json"
    return (package / "request.json").exists() and not later.exists()


def _state_line(
    task: Task,
    numbers: Mapping[str, int],
    *,
    never_starts: bool = False,
    expected: MemoryReservation | None = None,
) -> str:
    if task.state == PENDING:
        hint = f" (`roost stop {task.id}` removes it from the queue)" if never_starts else ""
        line = f"{task.reason}{hint}" if task.reason else "the daemon has not considered it yet"
        return line if expected is None else f"{line}; {_format_expected(expected)}"
    if task.state in ENDED:
        return _end_line(task)
    cards = [f"GPU {numbers[card]}" if card in numbers else card for card in task.cards]
    on = join_names([*cards, *task.need.host_texts])
    where = f"on {on}" if on else "without a card"
    if task.reserved_mb is not None:
        where = f"with {format_memory(task.reserved_mb)} {where}"
    if task.stop_asked:
        return f"{task.state} {where}: it was requested {STOP_REQUESTS[task.stop_asked]}"
    if task.state in (STARTING, RUNNING):
        since = f" since {format_clock(task.started)}" if task.started is not None else ""
        return f"{task.state} {where}{since}, attempt {task.attempt}"
    return f"{task.state} {where}: it is saving and will end"


def _format_expected(expected: MemoryReservation) -> str:
    return f"it will get {format_card_share(expected.mb)}: {expected.reason}"


def _end_line(task: Task) -> str:
    parts = [task.reason] if task.reason else []
    if not parts and task.state != SUCCEEDED and task.exit_code is not None:
        parts.append(f"exit code {task.exit_code}")
    if task.started is not None and task.ended is not None:
        parts.append(f"it ran for {format_duration(max(0.0, task.ended - task.started))}")
    if not parts:
        parts.append("it was requested to stop" if task.state == STOPPED else f"attempt {task.attempt}")
    ended = f" at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(task.ended))}" if task.ended else ""
    return f"{task.state}{ended}: {'; '.join(parts)}"
