"""Judges how a session ended: by what its worker said, else by what is seen from outside."""

# Standard library only

from __future__ import annotations

import json
import signal
from typing import NamedTuple

from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE

PEER_FAILED = "peer"
"""Why a rank failed to which nothing happened but that another one is gone."""
STALLED = "stalled"
"""Why a session failed that was ended because it hung."""
NOT_STARTED = "start"
"""Why a session failed whose worker did not come up: nothing of it has printed anything."""
_STATES = ("succeeded", "failed", "stopped")

SIGKILL_HINT = " (if nobody did that: the kernel, because memory ran out; `dmesg` tells)"
"""What is guessed of who was killed by SIGKILL, while nothing else tells it."""


class SessionOutcome(NamedTuple):
    """How a session ended, as ``sessions/<n>.json`` tells it."""

    state: str
    exit_code: int
    reason: str
    error: str | None


def judge_outcome(
    report: bytes,
    worker_status: int,
    *,
    asked_to_stop: bool,
    killed: bool,
    limit: SessionOutcome | None = None,
    overdue: str | None = None,
    is_command: bool = False,
) -> SessionOutcome:
    """Judges a session by the worker's final line, and without one by what is known from outside.

    Args:
        report: All that came through the report pipe.
        worker_status: The worker's exit code, or minus the signal that ended it.
        asked_to_stop: Whether SIGTERM was passed on to it.
        killed: Whether the tree was killed on request.
        limit: How a session ends that was asked to end by this limit of its own.
        overdue: What to say of one that had to be killed because it did not end when the limit asked.
        is_command: Whether it was no worker, but a command of the user: its exit code is what it says.
    """
    said = final_report(report)
    if is_command and (said is None or said.reason != NOT_STARTED):  # it may be a roost that has a worker
        said = _command_outcome(
            worker_status, asked_to_stop=asked_to_stop, was_killed=killed or overdue is not None
        )
    # A command says nothing of whether it was through when its limit had it end.
    if said is not None and (limit is None or not (is_command or said.state == "stopped")):
        return said
    if killed and said is None:
        return SessionOutcome("stopped", INTERRUPTED_EXIT_CODE, "killed", None)
    # Without a handler yet it was still loading: nothing was begun, so nothing is lost.
    ended_as_asked = said is not None or (asked_to_stop and worker_status == -signal.SIGTERM)
    if limit is not None and (ended_as_asked or overdue is not None):
        return limit._replace(error="; ".join(filter(None, (limit.error, overdue))) or None)
    if ended_as_asked:
        return SessionOutcome("stopped", STOPPED_EXIT_CODE, "signal", None)
    return _crash_outcome(worker_status)


def _command_outcome(status: int, *, asked_to_stop: bool, was_killed: bool) -> SessionOutcome | None:
    """What a command says by its end; nothing if it was killed, or a signal has ended it that nobody has
    asked for. One that was asked to stop may be through in that moment: 0 is success all the same."""
    if status == 0:
        return SessionOutcome("succeeded", 0, "done", None)
    if status < 0 and (was_killed or not asked_to_stop):
        return None
    if asked_to_stop:
        return SessionOutcome("stopped", STOPPED_EXIT_CODE, "signal", None)
    return SessionOutcome("failed", status, "exit", f"the command exited with {status}")


def _crash_outcome(worker_status: int) -> SessionOutcome:
    if worker_status < 0:
        name = status_name(worker_status)
        why = SIGKILL_HINT if name == "SIGKILL" else ""
        return SessionOutcome("crashed", 1, "signal", f"killed by {name}{why}")
    # A code to which roost gives a meaning must not claim it for a worker that did not say so.
    claims = worker_status in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)
    error = f"exited with {worker_status} before the run had ended"
    return SessionOutcome("crashed", 1 if claims else worker_status, "exit", error)


def killed_supervisor_outcome(supervisor_status: int) -> SessionOutcome:
    """How a session ended whose supervisor was killed (its wait status, negative)."""
    by = status_name(supervisor_status)
    why = " (a defect of roost; the traceback is in the output)" if by == "SIGABRT" else ""
    return SessionOutcome("crashed", 1, "signal", f"the supervisor was killed by {by}{why}, and the run with it")


def final_report(report: bytes) -> SessionOutcome | None:
    """The last line that means something; the pipe is open to all of the worker's code. Where several ranks
    have written into one pipe, the line of the first that failed by itself, else of the first that failed. Of
    a rank that did not come to its final line its launcher tells the exit code."""
    of_ranks: dict[int, SessionOutcome] = {}
    last = None
    for line in report.splitlines():
        try:
            said = json.loads(line)
            rank = int(said.get("rank", -1))
            if "status" in said:
                found = _crash_outcome(int(said["status"]))
                was = "was " if found.reason == "signal" else ""
                of_ranks.setdefault(rank, found._replace(error=f"rank {rank} {was}{found.error}"))
                continue
            found = SessionOutcome(said["state"], said["exit_code"], said["reason"], said["error"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        is_code = type(found.exit_code) is int and 0 <= found.exit_code <= 255
        typed = is_code and isinstance(found.reason, str)
        if typed and found.state in _STATES and isinstance(found.error, str | None):
            last = found
            if rank >= 0 and found.state == "failed":
                of_ranks[rank] = found._replace(error=f"rank {rank} failed: {found.error}")
    failed = of_ranks.values()
    return next((found for found in failed if found.reason != PEER_FAILED), next(iter(failed), last))


def status_name(status: int) -> int | str:
    """An exit code as it is, a signal by its name."""
    if status >= 0:
        return status
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal without a name
        return f"signal {-status}"
