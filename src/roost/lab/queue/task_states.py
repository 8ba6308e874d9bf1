"""The transitions between the states of a task, and the fields that change with them."""

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

TRANSITIONS = {
    PENDING: (STOPPED,),  # and starting, by `QueueStore.start` only
    STARTING: (RUNNING, PENDING, *ENDED),
    RUNNING: (STOPPING, PENDING, *ENDED),
    STOPPING: (PENDING, *ENDED),
}
RELEASED_FIELDS = {"cards": (), "reserved_mb": None, "stop_asked": ""}
PENDING_FIELDS = {"started": None, "ended": None, "exit_code": None}
STOP_REQUESTS = {
    EVICT: "to save, end and wait, for a task that is not opportunistic",
    STOP: "to save and end",
    KILL: "to end at once",
}
"""The stop requests to a live task, with the text of their event; the strongest last."""


def is_stronger(request: str, before: str) -> bool:
    """Returns whether a stop request is stronger than the one before (empty: none)."""
    strength = ("", *STOP_REQUESTS)
    return strength.index(request) > strength.index(before)


def stop_reason_while_pending(attempts: int) -> str:
    """Returns the reason of a task that was stopped while it was pending, after so many attempts."""
    return "stopped while it waited to continue" if attempts else "stopped before it started"


def require_transition(task: Task, to: str) -> None:
    """Checks that a task may change to a state; one with a stop request does not become pending again.

    Raises:
        ValueError: The transition is not allowed.
    """
    require_allowed(to in TRANSITIONS.get(task.state, ()), task, to)
    require_allowed(to != PENDING or task.stop_asked not in (STOP, KILL), task, to)


def require_allowed(allowed: bool, task: Task, to: str) -> None:
    """Raises ValueError if a transition is not allowed."""
    if not allowed:
        request = f", with the request {task.stop_asked}," if task.stop_asked else ""
        raise ValueError(f"a task that is {task.state}{request} does not become {to}")
