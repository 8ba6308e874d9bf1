"""What is said of tasks: a line for the subject, and some below it."""

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
from roost.lab.notices.notice_events import END, EVENT_OF, FAIL, STALL
from roost.lab.queue.history import Event
from roost.lab.queue.task import Task
from roost.lab.scheduling.stall_events import STALLED
from roost.package import records

_MOST_LINES, _MOST_METRICS, _MOST_NAME, _MOST_WHY = 30, 12, 80, 1000


class Notice(NamedTuple):
    """What is sent, whatever sends it. All texts are harmless, and the title is one line."""

    id: str
    """The same if it is sent again."""
    event: str
    """end, fail or stall; of several tasks the worst."""
    title: str
    text: str
    tasks: list[dict[str, Any]]
    """Each with its id (empty where it is in no queue), name, package, state, why, seconds and metrics; of
    one that stalls they are as of now."""


def one_line(text: str, most: int) -> str:
    """A text that breaks no header: line ends, tabs and control characters are made visible."""
    line = escape_control(text.strip()).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= most else line[: most - 1] + "…"


def seconds(event: Event, task: Task) -> float | None:
    """How long it ran, or has run by then; None if it never did, or has begun anew."""
    if task.started is None or (event.kind != STALLED and task.state != event.kind):
        return None
    until = event.at if event.kind == STALLED or task.ended is None else task.ended
    return max(0.0, until - task.started)


def of(found: Sequence[tuple[Event, Task]], *, skipped: int = 0, id: str | None = None) -> Notice:
    """One notice of what happened to tasks.

    Args:
        found: One event or several, the oldest first.
        skipped: How many more there were, which are only counted.
        id: Of the notice about what is in no queue.
    """
    told = [_told(event, task) for event, task in found]
    events = {EVENT_OF[event.kind] for event, _ in found}
    worst = next(name for name in (FAIL, STALL, END) if name in events)
    first, last = found[0][0], found[-1][0]
    if len(found) == 1:
        id = id or f"{told[0]['id']}.{first.seq}"
        return Notice(id, worst, _title(told[0]), _text(told[0], found[0][1]), told)
    counts = Counter(one["state"] for one in told)
    said = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    lines = [f"{_title(one)}: {one['why']}".rstrip(": ") for one in told[:_MOST_LINES]]
    more = len(told) - len(lines) + skipped
    lines += [f"and {more} more"] if more else []
    text = "\n".join([*lines, "", "To look: roost tasks, roost why ID"])
    title = f"roost: {len(told) + skipped} tasks on {_host()}: {said}"
    # With the task's: the numbers of two machines may be the same, and a mail server drops the second letter.
    id = f"{told[0]['id']}.{first.seq}-{last.seq}"
    return Notice(id, worst, title, text, told[:_MOST_LINES])


def trial() -> Notice:
    """What `roost notices --test` sends."""
    id = f"test.{os.uname().nodename}.{time.time_ns()}"
    return Notice(id, END, f"roost: a test from {_host()}", "Notices of your tasks arrive here.", [])


def _host() -> str:
    return one_line(os.uname().nodename, _MOST_NAME)


def _told(event: Event, task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": one_line(task.name, _MOST_NAME),
        "package": one_line(task.package, _MOST_WHY),
        "state": event.kind,
        "why": one_line(event.text, _MOST_WHY),
        "seconds": seconds(event, task),
        "metrics": _metrics(task),
        "at": event.at,
    }


def _title(told: dict[str, Any]) -> str:
    return f"roost: {told['name']} {told['state']}"


def _text(told: dict[str, Any], task: Task) -> str:
    lines = [f"why       {told['why']}"] if told["why"] else []
    if told["seconds"] is not None:
        lines.append(f"ran for   {format_duration(told['seconds'])}")
    metrics = ", ".join(
        f"{one_line(name, _MOST_NAME)} {value:.5g}" for name, value in told["metrics"].items()
    )
    lines += [f"metrics   {metrics}"] if metrics else []
    lines += [f"package   {told['package']}", f"machine   {_host()}"]
    look = f"roost why {task.id}" if task.id else f"roost show {shlex.quote(told['package'])}"
    return "\n".join([*lines, "", f"To look: {look}"])


def _metrics(task: Task) -> dict[str, float]:
    """The newest values of what was measured last; none of a command."""
    if task.session is None:
        return {}
    found: dict[str, float] = {}
    for row in records.read_tail(Path(task.package) / "records" / f"{task.session}.jsonl"):
        found |= records.metrics(row)
    finite = {name: value for name, value in found.items() if abs(value) < float("inf")}
    return dict(list(finite.items())[-_MOST_METRICS:])
