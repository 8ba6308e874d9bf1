"""The contents of a notice: a title for the subject line, a text, and the fields of its tasks."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.text.durations import format_duration
from roost.base.text.terminal_text import escape_control
from roost.lab.notices.notice_events import END, EVENT_BY_KIND, FAIL, STALL
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.task import Task
from roost.lab.scheduling.durability_events import NOT_DURABLE
from roost.lab.scheduling.stall_events import STALLED
from roost.package import records

_OF_LIVE_TASKS = (STALLED, NOT_DURABLE)
"""The kinds of events after which a task continues."""
_MAX_LINES, _MAX_METRICS = 30, 12
_MAX_NAME, _MAX_REASON = 80, 1000
"""The lengths of a name and of a reason, in characters."""


class Notice(NamedTuple):
    """One message about one or several tasks, the same for every service.

    No text has control characters, and the title is one line.
    """

    id: str
    """Unique; a notice that is sent again has the same id."""
    event: str
    """end, fail or stall; for several tasks the worst."""
    title: str
    text: str
    tasks: list[dict[str, Any]]
    """The fields of each task: id (empty for a run without a task), name, package, state, why, seconds,
    metrics and at (unix seconds). For a stall, seconds and metrics are those of the moment of the stall."""


def one_line(text: str, max_length: int) -> str:
    """Returns a text that cannot break a header: line ends, tabs and control characters are escaped."""
    line = escape_control(text.strip()).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def duration_seconds(event: QueueEvent, task: Task) -> float | None:
    """Returns how long a task had run at an event, in seconds; None if it never started or has been
    restarted."""
    is_live = event.kind in _OF_LIVE_TASKS
    if task.started is None or (not is_live and task.state != event.kind):
        return None
    until = event.at if is_live or task.ended is None else task.ended
    return max(0.0, until - task.started)


def compose(events: Sequence[tuple[QueueEvent, Task]], *, skipped: int = 0, id: str | None = None) -> Notice:
    """Returns one notice about events of tasks.

    Args:
        events: One event or several, each with its task, the oldest first.
        skipped: The number of further events, which are only counted.
        id: The id of a notice about a run without a task; None: made from the task and the events.
    """
    entries = [_task_entry(event, task) for event, task in events]
    names = {EVENT_BY_KIND[event.kind] for event, _ in events}
    worst = next(name for name in (FAIL, STALL, END) if name in names)
    first, last = events[0][0], events[-1][0]
    if len(events) == 1:
        id = id or f"{entries[0]['id']}.{first.seq}"
        return Notice(id, worst, _title(entries[0]), _text(entries[0], events[0][1]), entries)
    counts = Counter(entry["state"] for entry in entries)
    summary = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    lines = [f"{_title(entry)}: {entry['why']}".rstrip(": ") for entry in entries[:_MAX_LINES]]
    more = len(entries) - len(lines) + skipped
    lines += [f"and {more} more"] if more else []
    text = "\n".join([*lines, "", "Details: roost tasks, roost why ID"])
    title = f"roost: {len(entries) + skipped} tasks on {_host()}: {summary}"
    # The task's id is part of it: event numbers of two machines may be equal, and a mail server drops the
    # second message with the same Message-ID.
    id = f"{entries[0]['id']}.{first.seq}-{last.seq}"
    return Notice(id, worst, title, text, entries[:_MAX_LINES])


def compose_test() -> Notice:
    """Returns the notice that `roost notices --test` sends."""
    id = f"test.{os.uname().nodename}.{time.time_ns()}"
    return Notice(id, END, f"roost: a test from {_host()}", "Notices of your tasks arrive here.", [])


def _host() -> str:
    return one_line(os.uname().nodename, _MAX_NAME)


def _task_entry(event: QueueEvent, task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": one_line(task.name, _MAX_NAME),
        "package": one_line(task.package, _MAX_REASON),
        "state": event.kind,
        "why": one_line(event.text, _MAX_REASON),
        "seconds": duration_seconds(event, task),
        "metrics": _metrics(task),
        "at": event.at,
    }


def _title(entry: dict[str, Any]) -> str:
    return f"roost: {entry['name']} {entry['state']}"


def _text(entry: dict[str, Any], task: Task) -> str:
    lines = [f"why       {entry['why']}"] if entry["why"] else []
    if entry["seconds"] is not None:
        lines.append(f"ran for   {format_duration(entry['seconds'])}")
    metrics = ", ".join(
        f"{one_line(name, _MAX_NAME)} {value:.5g}" for name, value in entry["metrics"].items()
    )
    lines += [f"metrics   {metrics}"] if metrics else []
    lines += [f"package   {entry['package']}", f"machine   {_host()}"]
    command = f"roost why {task.id}" if task.id else f"roost show {shlex.quote(entry['package'])}"
    return "\n".join([*lines, "", f"Details: {command}"])


def _metrics(task: Task) -> dict[str, float]:
    """Returns the newest finite value of each metric in the last rows; none for a task that does not
    train."""
    if task.session is None or not task.traits.locks_package:
        return {}
    found: dict[str, float] = {}
    for row in records.read_tail(Path(task.package) / "records" / f"{task.session}.jsonl"):
        found |= records.metrics(row)
    finite = {name: value for name, value in found.items() if abs(value) < float("inf")}
    return dict(list(finite.items())[-_MAX_METRICS:])
