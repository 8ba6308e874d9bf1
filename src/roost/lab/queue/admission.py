"""What makes new tasks fit to be queued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from roost.base.errors import NotFound, Refused
from roost.lab.queue.task import ENDED, PENDING, SUCCEEDED, Task


def require_sound(tasks: Sequence[Task], known: Mapping[str, str]) -> None:
    """Makes sure that each can begin some day.

    Args:
        tasks: The new ones.
        known: The states of those that are queued, as far as the new ones name them.

    Raises:
        NotFound: One waits for a task that is not there.
        Refused: One is there already, or waits for itself or for one that did not succeed.
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
                require_hope(other, known.get(other))
        for other in task.after_any:
            if other not in new and other not in known:
                raise _not_there("--after-any", other)
    if circle := _circle(tasks):
        fix = "take one of these away from the tasks that come before"
        what = f"tasks would wait for each other for ever: {circle}"
        raise Refused(what, setting="--after", fix=fix)


def hopeless(tasks: Sequence[Task]) -> list[str]:
    """What keeps some of the tasks of a whole queue from ever beginning, a line each.

    Args:
        tasks: All of them.
    """
    known = {task.id for task in tasks}
    waiting = [task for task in tasks if task.state == PENDING]
    told = [
        f"the task {task.id} waits for {other}, of which nothing is left, and will never start"
        for task in waiting
        for other in task.after
        if other not in known
    ]
    circle = _circle(waiting)
    return [*told, f"tasks wait for each other for ever: {circle}"] if circle else told


def _circle(tasks: Sequence[Task]) -> str:
    """``a → b → a``; empty if none of them waits for itself."""
    try:
        TopologicalSorter({task.id: task.others for task in tasks}).prepare()
    except CycleError as error:
        return " → ".join(reversed(error.args[1]))
    return ""


def require_hope(other: str, state: str | None) -> None:
    """Makes sure that a task that is to succeed before another one still can.

    Args:
        other: That task.
        state: Its own; None: it is not queued.

    Raises:
        NotFound: It is not there.
        Refused: It did not succeed.
    """
    if state is None:
        raise _not_there("--after", other)
    if state in ENDED and state != SUCCEEDED:
        what = f"that task did not succeed ({state}), so what waits for it would never begin"
        fix = "leave --after out, name another task, or write --after-any: it begins however that one ended"
        raise Refused(what, setting="--after", received=other, fix=fix)


def _not_there(option: str, other: str) -> NotFound:
    fix = "look with `roost tasks`"
    return NotFound("there is no such task to wait for", setting=option, received=other, fix=fix)


def _require_utf8(task: Task) -> None:
    for text in (task.name, task.package):
        try:
            text.encode()
        except UnicodeEncodeError:
            what = "the package's path is no UTF-8, which the lab's queue cannot hold"
            raise Refused(what, where=ascii(text), fix="give a save_root with a plain name") from None
