"""Which state of a task may follow on which, and what else changes with it."""

from __future__ import annotations

from roost.lab.queue.task import (
    ENDED,
    EVICT,
    KILL,
    PENDING,
    RUNNING,
    STARTING,
    STOP,
    STOPPED,
    STOPPING,
    Task,
)

NEXT = {
    PENDING: (STOPPED,),  # and starting, by `Store.start` alone
    STARTING: (RUNNING, PENDING, *ENDED),
    RUNNING: (STOPPING, PENDING, *ENDED),
    STOPPING: (PENDING, *ENDED),
}
LIVES_NO_MORE = {"cards": (), "reserved_mb": None, "stop_asked": ""}
WAITS = {"started": None, "ended": None, "exit_code": None}
ASKED = {
    EVICT: "to save, end and wait, for a task that is not opportunistic",
    STOP: "to save and end",
    KILL: "to end at once",
}
"""What a live task can be asked, in words; the strongest last."""


def is_stronger(how: str, before: str) -> bool:
    """Whether a wish goes beyond what was asked before (empty: nothing)."""
    strength = ("", *ASKED)
    return strength.index(how) > strength.index(before)


def why_stopped(attempts: int) -> str:
    """Why a task has ended that was stopped while it waited, after so many attempts."""
    return "stopped while it waited to go on" if attempts else "stopped before it began"


def require_next(task: Task, to: str) -> None:
    """Makes sure that a task may become this; one that was asked to end waits no more.

    Raises:
        ValueError: It may not.
    """
    require(to in NEXT.get(task.state, ()), task, to)
    require(to != PENDING or task.stop_asked not in (STOP, KILL), task, to)


def require(allowed: bool, task: Task, to: str) -> None:
    """Raises ValueError if it is not allowed that a task becomes this."""
    if not allowed:
        asked = f", asked to {task.stop_asked}," if task.stop_asked else ""
        raise ValueError(f"a task that is {task.state}{asked} does not become {to}")
