"""Determines the outcome of a session: from the worker's final report, else from its exit status."""

# Standard library only

from __future__ import annotations

import json
import signal
from typing import NamedTuple

from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE
from roost.base.system.worker_protocol import NOT_STARTED, OUT_OF_HOST_MEMORY, TAKEN_OVER

PEER_FAILED = "peer"
"""The reason of a rank that failed only because another rank is gone."""
STALLED = "stalled"
"""The reason of a session that was ended because it stalled."""
SUPERVISOR_KILLED = "supervisor"
"""The reason of a session that ended only because its supervisor was killed."""
_STATES = ("succeeded", "failed", "stopped")

SIGKILL_HINT = " (if by no user: by the kernel, because memory ran out; see `dmesg`)"
"""The probable cause of a SIGKILL, printed as long as nothing better is known."""


class SessionOutcome(NamedTuple):
    """The outcome of a session. The names of the fields are those in ``sessions/<n>.json``."""

    state: str
    exit_code: int
    reason: str
    error: str | None


def judge_outcome(
    report: bytes,
    worker_status: int,
    *,
    stop_requested: bool,
    killed: bool,
    limit: SessionOutcome | None = None,
    overdue: str | None = None,
    is_command: bool = False,
) -> SessionOutcome:
    """Returns the outcome of a session from the worker's final report, and without one from what is known
    from outside.

    Args:
        report: All bytes that came through the report pipe.
        worker_status: The worker's exit code, or minus the signal that ended it.
        stop_requested: Whether SIGTERM was passed on to the worker.
        killed: Whether the process tree was killed on request.
        limit: The outcome that the session has if it ends because of this limit of its own.
        overdue: The error of a session that was killed because it did not end when the limit asked it to.
        is_command: Whether the session ran a command of the user instead of a worker: its exit code is the
            report.
    """
    reported = final_report(report)
    if limit is not None and limit.reason in (OUT_OF_HOST_MEMORY, TAKEN_OVER):
        return reported if reported is not None and reported.state == "succeeded" else limit
    if is_command and (
        reported is None or reported.reason != NOT_STARTED
    ):  # the command may be a roost with a worker of its own
        reported = _command_outcome(
            worker_status, stop_requested=stop_requested, was_killed=killed or overdue is not None
        )
    # A command does not report whether it had finished when its limit ended it.
    if reported is not None and (limit is None or not (is_command or reported.state == "stopped")):
        return reported
    if killed and reported is None:
        return SessionOutcome("stopped", INTERRUPTED_EXIT_CODE, "killed", None)
    # Ended by SIGTERM itself, it was still loading: no work had started, so none is lost.
    ended_as_asked = reported is not None or (stop_requested and worker_status == -signal.SIGTERM)
    if limit is not None and (ended_as_asked or overdue is not None):
        return limit._replace(error="; ".join(filter(None, (limit.error, overdue))) or None)
    if ended_as_asked:
        return SessionOutcome("stopped", STOPPED_EXIT_CODE, "signal", None)
    return _crash_outcome(worker_status)


def _command_outcome(status: int, *, stop_requested: bool, was_killed: bool) -> SessionOutcome | None:
    """Returns the outcome that a command's exit status means; None if it was killed, or ended by a signal
    without a stop request. A command that was asked to stop may finish at that moment: 0 is success all the
    same."""
    if status == 0:
        return SessionOutcome("succeeded", 0, "done", None)
    if status < 0 and (was_killed or not stop_requested):
        return None
    if stop_requested:
        return SessionOutcome("stopped", STOPPED_EXIT_CODE, "signal", None)
    return SessionOutcome("failed", status, "exit", f"the command exited with {status}")


def _crash_outcome(worker_status: int) -> SessionOutcome:
    if worker_status < 0:
        name = status_name(worker_status)
        why = SIGKILL_HINT if name == "SIGKILL" else ""
        return SessionOutcome("crashed", 1, "signal", f"killed by {name}{why}")
    # An exit code with a meaning in roost must not have it without a final report.
    claims = worker_status in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)
    error = f"exited with {worker_status} before the run had ended"
    return SessionOutcome("crashed", 1 if claims else worker_status, "exit", error)


def killed_supervisor_outcome(supervisor_status: int) -> SessionOutcome:
    """Returns the outcome of a session whose supervisor was killed (``supervisor_status``: its negative wait
    status)."""
    by = status_name(supervisor_status)
    why = " (a defect of roost; the traceback is in the output)" if by == "SIGABRT" else ""
    return SessionOutcome(
        "crashed", 1, SUPERVISOR_KILLED, f"the supervisor was killed by {by}{why}, and the run with it"
    )


def final_report(report: bytes) -> SessionOutcome | None:
    """Returns the last valid line of a report pipe; invalid lines are skipped, as the pipe is open to all of
    the worker's code.

    Where several ranks have written into one pipe: the line of the first rank that failed on its own, else of
    the first that failed. For a rank that wrote no final report its launcher reports the exit code.
    """
    of_ranks: dict[int, SessionOutcome] = {}
    last = None
    for line in report.splitlines():
        try:
            fields = json.loads(line)
            rank = int(fields.get("rank", -1))
            if "status" in fields:
                found = _crash_outcome(int(fields["status"]))
                was = "was " if found.reason == "signal" else ""
                of_ranks.setdefault(rank, found._replace(error=f"rank {rank} {was}{found.error}"))
                continue
            found = SessionOutcome(fields["state"], fields["exit_code"], fields["reason"], fields["error"])
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
    """Returns an exit code unchanged, and the name of a signal."""
    if status >= 0:
        return status
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal without a name
        return f"signal {-status}"
