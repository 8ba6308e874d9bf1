"""Checks of the dependencies of new tasks, before they are queued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from roost.base.errors import NotFound, Refused
from roost.lab.queue.task import ENDED, PENDING, SUCCEEDED, Task


def require_can_start(tasks: Sequence[Task], known: Mapping[str, str]) -> None:
    """Checks that new tasks can start at some time.

    Args:
        tasks: The new tasks.
        known: The states of the queued tasks that the new ones name.

    Raises:
        NotFound: A dependency is not in the queue.
        Refused: An id is queued already, or a task depends on itself or on a task that did not succeed.
    """
    for id, count in Counter(task.id for task in tasks).items():
        if count > 1 or id in known:
            raise Refused("there is already a task of this id", received=id, fix="submit it once")
    new = {task.id for task in tasks}
    for task in tasks:
        if task.state != PENDING:
            raise ValueError(f"the new task {task.id} is {task.state}")
        _require_utf8(task)
        for other in task.after:
            if other not in new:
                require_can_succeed(other, known.get(other))
        for other in task.after_any:
            if other not in new and other not in known:
                raise _unknown_dependency("--after-any", other)
    if cycle := _dependency_cycle(tasks):
        fix = "remove one of these dependencies"
        what = f"tasks would wait for each other forever: {cycle}"
        raise Refused(what, setting="--after", fix=fix)


def never_starting(tasks: Sequence[Task]) -> list[str]:
    """Returns a line for each reason why tasks of a whole queue will never start.

    Args:
        tasks: All tasks of the queue.
    """
    known = {task.id for task in tasks}
    waiting = [task for task in tasks if task.state == PENDING]
    reasons = [
        f"the task {task.id} waits for {other}, which no longer exists, and will never start"
        for task in waiting
        for other in task.after
        if other not in known
    ]
    cycle = _dependency_cycle(waiting)
    return [*reasons, f"tasks wait for each other forever: {cycle}"] if cycle else reasons


def _dependency_cycle(tasks: Sequence[Task]) -> str:
    """Returns a cycle as ``a → b → a``; empty if there is none."""
    try:
        TopologicalSorter({task.id: task.dependencies for task in tasks}).prepare()
    except CycleError as error:
        return " → ".join(reversed(error.args[1]))
    return ""


def require_can_succeed(other: str, state: str | None) -> None:
    """Checks that a task that must succeed before another one still can.

    Args:
        other: The id of the task.
        state: Its state; None: it is not in the queue.

    Raises:
        NotFound: The task is not in the queue.
        Refused: It ended without success.
    """
    if state is None:
        raise _unknown_dependency("--after", other)
    if state in ENDED and state != SUCCEEDED:
        what = f"that task did not succeed ({state}), so a task that waits for it would never start"
        fix = "leave out --after, name another task, or write --after-any to start after it however it ended"
        raise Refused(what, setting="--after", received=other, fix=fix)


def _unknown_dependency(option: str, other: str) -> NotFound:
    fix = "choose an id from `roost tasks`"
    return NotFound("there is no such task to wait for", setting=option, received=other, fix=fix)


def _require_utf8(task: Task) -> None:
    for text in (task.name, task.package):
        try:
            text.encode()
        except UnicodeEncodeError:
            what = "the package's path is not UTF-8, which the lab's queue cannot store"
            raise Refused(what, where=ascii(text), fix="give a save_root with a plain name") from None
