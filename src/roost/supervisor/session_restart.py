"""The next session, started automatically by the guard after a crash or failure (``--restart N``).

::

    session 1 ends     its supervisor writes 2.request.json, then 1.json with "restarted_as": 2
    a pause            the record of session 2 names the guard, so that the session can be watched and
                       stopped; the guard keeps the lock
    session 2 starts   from the last checkpoint, under a supervisor of its own
"""

# Standard library only

from __future__ import annotations

import json
import os
import signal
import time

from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE
from roost.base.system.worker_protocol import DEADLINE_VARIABLE, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY
from roost.package.session_schema import SessionRequest, process_fields
from roost.supervisor import attempt_progress, signals
from roost.supervisor.attempt_progress import AttemptProgress
from roost.supervisor.exit_status import PEER_FAILED, STALLED, SessionOutcome
from roost.supervisor.output.output_file import rank_output_path
from roost.supervisor.session_record import SessionRecordFile, initial_fields
from roost.supervisor.session_spec import SessionSpec

_RETRIED_REASONS = ("exception", OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, PEER_FAILED, STALLED)
"""The reasons of failures that may not occur again. A wrong setting is none of them."""
_MAX_PAUSE_SECONDS = 30.0


def pause_seconds(spec: SessionSpec) -> float:
    """Returns how long to wait before this session."""
    return min(_MAX_PAUSE_SECONDS, 2.0**spec.restarted)


def plan_restart(
    spec: SessionSpec,
    record: SessionRecordFile,
    end: SessionOutcome,
    *,
    guard_pid: int,
    is_error_printed: bool,
) -> str | None:
    """Writes the request of the next session, if there is to be one, and names it in the record of this one.
    Returns the line to print.

    To be called before the end is recorded: a follower must find the next session as soon as this one has
    ended.

    Args:
        spec: The session.
        record: Its record.
        end: Its outcome.
        guard_pid: The guard, which lives until the next session starts.
        is_error_printed: Whether the output contains the error already.
    """
    # Of a program of the user the exit code is all that says how it has failed.
    reasons = (*_RETRIED_REASONS, *(["exit"] if spec.is_command else []))
    accident = end.state == "crashed" or (end.state == "failed" and end.reason in reasons)
    if spec.restarted >= spec.restart or not accident:
        return None
    if record.fields.stop_asked or record.fields.guard_lost is not None:
        return None
    from pathlib import Path

    from roost.package.owner import owner_file

    if spec.owner and owner_file.is_owned_by_other(Path(spec.owner), spec.session, spec.token):
        return "this session is not restarted: another machine has taken the package over"
    why = "" if is_error_printed else f": {end.error}"
    stuck = attempt_progress.stuck_text(_attempts(spec, record), needs_steps=spec.is_command)
    if stuck is not None:
        left = spec.restart - spec.restarted
        restarts = "1 restart is" if left == 1 else f"{left} restarts are"
        return (
            f"session {spec.session} {end.state}{why}; it is not restarted, though {restarts} left: {stuck}; "
            "when the cause is mended, `roost continue` starts it again"
        )
    try:
        _write_request(spec, guard_pid)
    except (OSError, ValueError, TypeError) as error:
        return f"this session is not restarted: {error}"
    number = record.fields.restarted_as = spec.session + 1
    return (
        f"session {spec.session} {end.state}{why}; session {number} begins in "
        f"{pause_seconds(spec):g} s (restart {spec.restarted + 1} of {spec.restart})"
    )


def _attempts(spec: SessionSpec, record: SessionRecordFile) -> list[AttemptProgress]:
    """Returns the progress of this session and of those before it that it has restarted, the newest first."""
    folder, number = os.path.dirname(spec.session_file), spec.session  # noqa: PTH120
    found = [attempt_progress.progress_of(record.fields)]
    while len(found) < attempt_progress.NO_FURTHER_ATTEMPTS:
        request = SessionRequest.load(f"{folder}/{number}.request.json")
        if request is None or not attempt_progress.is_automatic(request):
            break
        number -= 1
        earlier = SessionRecordFile.load(f"{folder}/{number}.json")
        if earlier is None:
            break
        found.append(attempt_progress.progress_of(earlier.fields))
    return found


def _write_request(spec: SessionSpec, guard_pid: int) -> None:
    from pathlib import Path

    from roost.base import durable

    folder, number = Path(spec.session_file).parent, spec.session + 1
    request = SessionRequest.from_json(json.loads((folder / f"{spec.session}.request.json").read_bytes()))
    has_begun = (folder.parent / "records" / f"{spec.session}.jsonl").exists()
    request.session = number
    request.update(process_fields(guard_pid))
    request.token, request.restart_of = os.urandom(16).hex(), spec.session
    request.output_offsets = _output_offsets(spec)
    if has_begun:  # then its overrides and checkpoint are in effect already
        request.overrides, request.checkpoint = [], None
    durable.write(folder / f"{number}.request.json", json.dumps(request, indent=2).encode() + b"\n")


def _output_offsets(spec: SessionSpec) -> dict[str, int]:
    """Returns where in the output of each rank, by file name, the next session begins."""
    paths = [rank_output_path(spec.output, rank) for rank in range(max(1, len(spec.ranks)))]
    there = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
    return {os.path.basename(path): os.stat(path).st_size for path in there}  # noqa: PTH116, PTH119


def wait_before_restart(spec: SessionSpec, seconds: float) -> int | None:
    """Waits before a session starts. Its record names the guard as supervisor, so that the session can be
    stopped: then it has ended, and its exit code is returned. Called by the guard, with the control signals
    blocked."""
    guard_pid = os.getpid()
    record = SessionRecordFile(
        spec.session_file, initial_fields(spec.session, worker_pid=None, guard_pid=guard_pid, group=None)
    )
    record.write_if_possible()
    request = signal.sigtimedwait(signals.CONTROL_SIGNALS, seconds)
    if request is None:
        return None
    now = request.si_signo == signals.KILL_SIGNAL
    end = SessionOutcome("stopped", INTERRUPTED_EXIT_CODE if now else STOPPED_EXIT_CODE, "signal", None)
    record.note_worker_end(None, seconds=0.0)
    record.write_end(end)
    return end.exit_code


def planned_session(spec: SessionSpec) -> SessionSpec | None:
    """Returns the session that was planned to follow this one; None if there is none."""
    record = SessionRecordFile.load(spec.session_file)
    if record is None or record.fields.restarted_as is None:
        return None
    folder = os.path.dirname(spec.session_file)  # noqa: PTH120
    number = spec.session + 1
    request = SessionRequest.load(f"{folder}/{number}.request.json")
    if request is None:
        return None
    return spec._replace(
        argv=[*spec.argv[:-1], str(number)],
        session=number,
        session_file=f"{folder}/{number}.json",
        stacks=spec.stacks and f"{folder}/{number}.stacks.txt",
        seal=spec.seal and f"{folder}/{number}.seal.json",
        system=spec.system and f"{os.path.dirname(spec.system)}/{number}.jsonl",  # noqa: PTH120
        request_file="",  # made durable when the restart was planned
        token=request["token"],
        restarted=spec.restarted + 1,
        ready_fd=None,
    )


def with_remaining_time(spec: SessionSpec) -> SessionSpec:
    """Returns the spec with the remaining time: the limit covers all sessions together, pauses included."""
    deadline = spec.env.get(DEADLINE_VARIABLE)
    if spec.limits.wall_seconds is None or deadline is None:
        return spec
    remaining = max(0.0, float(deadline) - time.time())
    return spec._replace(limits=spec.limits._replace(wall_seconds=remaining))
