"""Whether the automatic attempts at a run get no further, by the files of its package."""

from __future__ import annotations

from collections.abc import Sequence

from roost.base.system.worker_protocol import TIME_LIMIT
from roost.package.checkpoints import checkpoint
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.sessions import Session
from roost.supervisor import attempt_progress
from roost.supervisor.attempt_progress import AttemptProgress


def stuck_text(folder: SessionFolder, kind: str) -> str | None:
    """Returns a sentence about attempts that go in circles; None if they do not, or if it cannot be known.

    Args:
        folder: The folder of the sessions, whose newest one has ended.
        kind: The kind of the task: only trainings and programs have steps.
    """
    if kind not in (TaskKind.TRAIN, TaskKind.COMMAND) or not folder.is_package:
        return None
    attempts = _attempts(folder.sessions())
    if len(attempts) < attempt_progress.SAME_STEP_ATTEMPTS:
        return None
    unrecorded = [one for one in attempts if "state" not in one.recorded or one.recorded.state == "running"]
    saved = _saved_steps(folder) if unrecorded else {}
    found = [_progress(one, saved) for one in attempts]
    return attempt_progress.stuck_text(found, needs_steps=kind == TaskKind.COMMAND)


def _attempts(sessions: Sequence[Session]) -> list[Session]:
    """Returns the newest sessions that began without a person, and the one before them, the newest first."""
    found: list[Session] = []
    for session in reversed(sessions):
        if found and session.state == "stopped" and session.recorded.reason != TIME_LIMIT:
            break  # it was asked to stop, for another task or by a person
        found.append(session)
        enough = len(found) == attempt_progress.NO_FURTHER_ATTEMPTS
        if enough or not attempt_progress.is_automatic(session.request):
            break
    return found


def _saved_steps(folder: SessionFolder) -> dict[int, int]:
    """Returns the step of the newest checkpoint of each session that has saved any."""
    manifests = checkpoint.read_manifests(PackageFolder(folder.path).checkpoints)
    return {info.session: info.step for info in manifests}


def _progress(session: Session, saved: dict[int, int]) -> AttemptProgress:
    """Returns the progress of a session. One that a power cut has ended recorded none: its checkpoints
    remain."""
    recorded = attempt_progress.progress_of(session.recorded)
    if session.number not in saved:
        return recorded
    return AttemptProgress(max(recorded.step or 0, saved[session.number]), saved[session.number])
