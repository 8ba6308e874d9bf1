"""What follows on the end of an attempt."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from roost.base.system.worker_protocol import EARLY_STOP
from roost.base.text.byte_sizes import format_memory
from roost.lab.executors.executor import AttemptStatus
from roost.lab.memory.memory_prediction import MAX_RETRIES, OutOfMemory, resources_after_out_of_memory
from roost.lab.queue.task import CRASHED, EVICT, FAILED, KILL, PENDING, STOP, STOPPED, SUCCEEDED, Task
from roost.lab.queue.task_states import why_stopped

MAX_LOST_IN_A_ROW = 3
"""So many attempts in a row may end by no fault of their own without having saved anything. More often it is
no accident: whatever it does takes the machine down, or somebody does not want it."""
_PAUSES = (0.0, 10.0, 60.0)
"""Seconds before the second, third and each later attempt after one that ended by itself right after its
start: what is wrong with the machine or the script is still so a moment later."""
_SHORT_SECONDS = 60.0
"""What is right after the start."""

_DESCRIPTIONS = {"signal": "it was asked to save and end", "killed": "it was ended at once"}
"""What a session tells of its end, for people."""


def state_after(task: Task, seen: AttemptStatus) -> tuple[str, dict[str, Any]]:
    """The state that follows, and what else changes of the task.

    Args:
        task: As it lived.
        seen: How the attempt has ended.
    """
    if task.stop_asked in (STOP, KILL):
        if seen.state == PENDING:
            return STOPPED, {"reason": why_stopped(task.attempt - 1)}
        return seen.state, {"reason": describe_end(seen.state, seen.reason)}
    if seen.state == PENDING:
        return PENDING, {"reason": "the lab was interrupted before it began"}
    if seen.state == STOPPED and task.stop_asked == EVICT:
        return PENDING, {"reason": "it made room for others"}
    ran_out = seen.taken.ran_out if seen.taken is not None else None
    was_unlucky = seen.is_accident or (ran_out is not None and not ran_out.own_fault)
    if was_unlucky and seen.in_vain >= MAX_LOST_IN_A_ROW:
        what = f"{seen.in_vain} attempts in a row ended by no fault of their own and saved nothing"
        return _retry_if_requested(task, seen, f"{what}; the last: {seen.reason}")
    if ran_out is not None:
        return _after_out_of_memory(task, seen, ran_out)
    if seen.is_accident:
        return PENDING, {"reason": f"attempt {task.attempt}: {seen.reason}", **_pause(task, seen)}
    return _retry_if_requested(task, seen, describe_end(seen.state, seen.reason))


def describe_end(state: str, reason: str) -> str:
    """Why a session ended, for people; empty where it came to its end."""
    if state == SUCCEEDED:
        return reason if reason == EARLY_STOP else ""
    return _DESCRIPTIONS.get(reason, reason)


def _retry_if_requested(task: Task, seen: AttemptStatus, reason: str) -> tuple[str, dict[str, Any]]:
    state = seen.state
    if state in (FAILED, CRASHED) and task.retries:
        why = f"attempt {task.attempt} {state}: {reason}"
        return PENDING, {"reason": why, "retries": task.retries - 1, **_pause(task, seen)}
    return state, {"reason": reason}


def _pause(task: Task, seen: AttemptStatus) -> dict[str, float]:
    """The time before which the next attempt does not begin, if this one was short."""
    ended = time.time() if seen.ended is None else seen.ended
    is_short = seen.started is None or ended - seen.started < _SHORT_SECONDS
    seconds = _PAUSES[min(task.attempt, len(_PAUSES)) - 1] if is_short else 0.0
    return {"begin": ended + seconds} if seconds else {}


def _after_out_of_memory(task: Task, seen: AttemptStatus, ran_out: OutOfMemory) -> tuple[str, dict[str, Any]]:
    """It goes on from its last checkpoint with more; a retry that somebody asked for is not used up, nor does
    one help where nothing larger is left."""
    again = resources_after_out_of_memory(ran_out, count=task.need.ran_out)
    had = (
        "a whole card"
        if ran_out.reserved_mb is None
        else f"{format_memory(ran_out.reserved_mb)} of each card"
    )
    took = f"it had {had}, and took {format_memory(round(ran_out.peak_mb))}"
    if ran_out.asked_mb:
        took += f" when it asked for {format_memory(round(ran_out.asked_mb))} more"
    if again is None:
        fix = (
            "take a smaller data.batch_size, with gradient_accumulation_steps raised as much, or more cards "
            "(--strategy fsdp)"
        )
        often = f", for the {_nth(task.need.ran_out + 1)} time" if task.need.ran_out else ""
        why = f"out of memory{often}, and nothing larger is left: {took}; {fix}"
        return FAILED, {"reason": f"{why} ({seen.reason})"}
    least_mb = max(filter(None, (again.mb, task.need.least_mb)), default=None)
    need = msgspec.structs.replace(
        task.need, least_mb=least_mb, ran_out=again.count, whole=task.need.whole or again.whole
    )
    if not ran_out.own_fault:
        why = f"attempt {task.attempt} ran out of memory by no fault of its own: {took}; others had the rest"
        return PENDING, {"reason": why, "need": need}
    if not again.whole:
        then = f"{format_memory(again.mb or 0)} of each card"
    else:
        then = "a whole card" if ran_out.reserved_mb is not None else "a larger card"
    why = f"attempt {task.attempt} ran out of memory: {took}; it goes on with {then}"
    return PENDING, {"reason": f"{why} ({again.count} of {MAX_RETRIES})", "need": need}


def _nth(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")
