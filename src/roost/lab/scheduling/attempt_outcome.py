"""The outcome of an attempt: the next state of its task, and whether it is retried."""

from __future__ import annotations

import time
from typing import Any

from roost.base.system.worker_protocol import EARLY_STOP
from roost.base.text.byte_sizes import format_memory
from roost.lab.executors.executor import AttemptStatus
from roost.lab.memory.memory_prediction import (
    MAX_OUT_OF_MEMORY_RETRIES,
    OutOfMemory,
    request_after_out_of_memory,
)
from roost.lab.queue.task import CRASHED, EVICT, FAILED, KILL, PENDING, STOP, STOPPED, SUCCEEDED, Task
from roost.lab.queue.task_states import stop_reason_while_pending

MAX_LOST_IN_A_ROW = 3
"""So many attempts in a row may be lost without having saved anything. More often it is no accident: the task
takes the machine down, or a user kills it on purpose."""
_PAUSES = (0.0, 10.0, 60.0)
"""Seconds before the second, third and each later attempt after one that ended right after its start: an
error of the machine or the script is still there a moment later."""
_SHORT_SECONDS = 60.0
"""An attempt that ran shorter than this ended right after its start."""

_DESCRIPTIONS = {"signal": "it was requested to save and end", "killed": "it was ended at once"}
"""The recorded reasons of a session's end, for people."""


def state_after(task: Task, status: AttemptStatus) -> tuple[str, dict[str, Any]]:
    """Returns the next state of a task, and its other changes.

    Args:
        task: The task before the end of the attempt.
        status: The status of the ended attempt.
    """
    if task.stop_asked in (STOP, KILL):
        if status.state == PENDING:
            return STOPPED, {"reason": stop_reason_while_pending(task.attempt - 1)}
        return status.state, {"reason": describe_end(status.state, status.reason)}
    if status.state == STOPPED and task.stop_asked == EVICT:
        return PENDING, {"reason": "it was preempted by other tasks"}
    ran_out = status.memory.ran_out if status.memory is not None else None
    is_lost = status.is_lost or (ran_out is not None and not ran_out.own_fault)
    if task.need.no_restart and (is_lost or status.state != PENDING):
        why = describe_end(status.state, status.reason)
        hint = "; it is not started again (--no-restart)" if is_lost or ran_out is not None else ""
        return CRASHED if status.state == PENDING else status.state, {"reason": f"{why}{hint}"}
    if status.state == PENDING and not is_lost:
        return PENDING, {"reason": "the lab was interrupted before it began"}
    if is_lost and status.lost_in_a_row >= MAX_LOST_IN_A_ROW:
        what = f"{status.lost_in_a_row} attempts in a row ended by no fault of their own and saved nothing"
        ended = status._replace(state=CRASHED) if status.state == PENDING else status
        return _retry_if_requested(task, ended, f"{what}; the last: {status.reason}")
    if ran_out is not None:
        return _after_out_of_memory(task, status, ran_out)
    if status.is_lost:
        return PENDING, {"reason": f"attempt {task.attempt}: {status.reason}", **_pause(task, status)}
    return _retry_if_requested(task, status, describe_end(status.state, status.reason))


def describe_end(state: str, reason: str) -> str:
    """Returns why a session ended, for people; empty if it ran to its end."""
    if state == SUCCEEDED:
        return reason if reason == EARLY_STOP else ""
    return _DESCRIPTIONS.get(reason, reason)


def _retry_if_requested(task: Task, status: AttemptStatus, reason: str) -> tuple[str, dict[str, Any]]:
    state = status.state
    if state in (FAILED, CRASHED) and task.retries and status.stuck:
        retries = "1 retry is" if task.retries == 1 else f"{task.retries} retries are"
        return state, {"reason": f"{reason}; it is not retried, though {retries} left: {status.stuck}"}
    if state in (FAILED, CRASHED) and task.retries:
        why = f"attempt {task.attempt} {state}: {reason}"
        return PENDING, {"reason": why, "retries": task.retries - 1, **_pause(task, status)}
    return state, {"reason": reason}


def _pause(task: Task, status: AttemptStatus) -> dict[str, float]:
    """Returns the begin time of the next attempt, if this one was short."""
    ended = time.time() if status.ended is None else status.ended
    is_short = status.started is None or ended - status.started < _SHORT_SECONDS
    seconds = _PAUSES[min(task.attempt, len(_PAUSES)) - 1] if is_short else 0.0
    return {"begin": ended + seconds} if seconds else {}


def _after_out_of_memory(
    task: Task, status: AttemptStatus, ran_out: OutOfMemory
) -> tuple[str, dict[str, Any]]:
    """Continues from the last checkpoint with more memory. This costs none of the retries that the user
    requested, and these do not help if no larger card exists."""
    need = request_after_out_of_memory(ran_out, task.need)
    had = (
        "a whole card"
        if ran_out.reserved_mb is None
        else f"{format_memory(ran_out.reserved_mb)} of each card"
    )
    took = f"it had {had}, and used {format_memory(round(ran_out.peak_mb))}"
    if ran_out.asked_mb:
        took += f" when it requested {format_memory(round(ran_out.asked_mb))} more"
    if need is None:
        fix = (
            "take a smaller data.batch_size, with gradient_accumulation_steps raised as much, or more cards "
            "(--strategy fsdp)"
        )
        often = f", for the {_nth(task.need.ran_out + 1)} time" if task.need.ran_out else ""
        why = f"out of memory{often}, and no larger card exists: {took}; {fix}"
        return FAILED, {"reason": f"{why} ({status.reason})"}
    if not ran_out.own_fault:
        fault = "ran out of memory by no fault of its own"
        why = f"attempt {task.attempt} {fault}: {took}; other processes used the rest"
        return PENDING, {"reason": why, "need": need}
    if not need.whole:
        then = f"{format_memory(need.least_mb or 0)} of each card"
    else:
        then = "a larger card" if (need.least_mb or 0) > ran_out.card_mb else "a whole card"
    why = f"attempt {task.attempt} ran out of memory: {took}; it continues with {then}"
    return PENDING, {"reason": f"{why} ({need.ran_out} of {MAX_OUT_OF_MEMORY_RETRIES})", "need": need}


def _nth(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")
