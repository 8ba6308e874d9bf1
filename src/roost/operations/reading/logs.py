"""``logs``: the output of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from roost.base.errors import STOPPED_EXIT_CODE, NotFound
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.queue import database
from roost.lab.queue.task import ENDED, PENDING, STARTING, STOPPED, Task
from roost.operations import lab, resolve
from roost.operations.reading import package_schema
from roost.operations.reading.output_reader import OutputReader, tail_offset
from roost.operations.sessions import running_session
from roost.operations.sessions.running_session import RunningSession
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.sessions import Session
from roost.supervisor.output.output_file import rank_output_path

_POLL_SECONDS = 0.05


def logs(
    package: Path | str, *, follow: bool = False, lines: int | None = None, rank: int = 0
) -> Generator[bytes | str, None, int]:
    """Yields the output of a package, or of a task that reads one, byte for byte. A line marks output that
    was too long to be kept.

    Args:
        package: The package, or its task (`roost.operations.resolve`).
        follow: Continue until the running session has ended; for a task, until the task has ended. A daemon
            that was killed together with its watchdog is started for it.
        lines: Begin with this many last lines; None: begin at the start.
        rank: The rank whose output is read.

    Yields:
        Bytes as they arrive. With ``follow`` also empty bytes while nothing arrives, so that a caller can
        stop, and texts: notes for the user before and between the attempts of a task.

    Returns:
        With ``follow`` the exit code of the last session, as `roost run` would have exited; 0 without it, and
        where none has ended.

    Raises:
        NotFound: There is no such package or task, or no output of this rank; or with ``follow``: the package
            was deleted while its session ran.
        UsageError: Several tasks match.
        DamagedPackage: With ``follow``: the files do not say whether the session has ended.
        OSError: The output cannot be read.
    """
    found = resolve.find_session_folder(package)
    task = resolve.unfinished_task(found.path) if follow else None
    if task is not None:
        yield from _wait_for_first_attempt(found, task.id)
    opened = _open(found, is_checked=follow)
    path = Path(rank_output_path(str(opened.output), rank))
    if rank and not path.exists():
        raise NotFound(
            f"there is no output of rank {rank}", where=opened.path, fix=_other_output_hint(opened)
        )
    offset = 0 if lines is None else tail_offset(path, lines)
    session = opened.sessions()[-1] if follow and opened.sessions() else None
    if session is None:
        with OutputReader(path, offset=offset) as output:
            yield from output.read_new()
        return _end_code(opened) if follow else 0
    first = replace(running_session.running_session(opened, session.number, offset=offset), output=path)
    try:
        if task is None:
            yield from (piece for piece in running_session.follow(first) if isinstance(piece, bytes))
        else:
            yield from _follow_attempts(first, opened, task.id)
        return _end_code(opened)
    finally:
        if opened.is_package:
            running_session.require_not_deleted(opened.path)


def _open(found: SessionFolder, *, is_checked: bool) -> SessionFolder:
    """Returns the folder; a package only if it can be opened."""
    if not found.is_package:
        return found
    return package_schema.open_checked(found.path) if is_checked else PackageFolder.open(found.path)


def _end_code(folder: SessionFolder) -> int:
    """Returns the exit code of the newest session, or of a task that ended before it had one; 0 if it has not
    ended."""
    found = folder.sessions()
    if not found:
        return _end_code_without_session(folder.path)
    if found[-1].state not in ENDED:
        return 0
    code = found[-1].recorded.exit_code
    return code if isinstance(code, int) else 1  # no process was left to record it


def _end_code_without_session(folder: Path) -> int:
    if not database.has_existed(state_folder.lab_folder()):
        return 0
    with contextlib.suppress(NotFound), lab.open_queue() as store:
        state = store.find(str(folder)).state
        return STOPPED_EXIT_CODE if state == STOPPED else 1 if state in ENDED else 0
    return 0


def explain_no_output(package: Path | str) -> str:
    """Returns one line that says why the output of a package is empty.

    Raises:
        NotFound, UsageError: As `logs`.
    """
    found = resolve.find_session_folder(package)
    started = _open(found, is_checked=False).sessions()
    if started:
        whose = "the package" if found.is_package else "the task"
        return f"{whose} has no output{' yet' if started[-1].state in ('starting', 'running') else ''}"
    task = resolve.unfinished_task(found.path)
    return "the run never started" if task is None else f"not started yet: `roost why {task.id}` says why"


def _wait_for_first_attempt(folder: SessionFolder, id: str) -> Iterator[bytes | str]:
    """Yields empty bytes until a task has its first session, and notes where no daemon runs to start it."""
    note: str | None = None
    while _read_task(id).state in (PENDING, STARTING) and not _has_session(folder, id):
        last, note = note, lab.restart_lost_daemon()
        yield note if note is not None and note != last else b""
        time.sleep(_POLL_SECONDS)


def _has_session(folder: SessionFolder, id: str) -> bool:
    return any(one.request.task == id for one in _open(folder, is_checked=False).sessions())


def _read_task(id: str) -> Task:
    with lab.open_queue() as store:
        return store.task(id)


def _follow_attempts(first: RunningSession, folder: SessionFolder, id: str) -> Iterator[bytes | str]:
    """Yields the output of all attempts of a task, from the session ``first`` on, and notes between them."""
    notes: list[str] = []
    num_reported = 0

    def add_note(note: str) -> None:
        if note not in notes:
            notes.append(note)

    def next_session(session: Session) -> int | None:
        state = _read_task(id).state  # read before the sessions: none begins after the task has ended
        later = [one.number for one in folder.sessions() if one.number > session.number]
        if not later and state in ENDED:
            return None
        if not later and (note := lab.restart_lost_daemon()) is not None:
            add_note(note)
            if daemon_presence.find_daemon(state_folder.lab_folder()) is None:
                return None
        if later or state == PENDING:
            add_note(f"session {session.number} {session.state}; the task continues in another session")
        return min(later, default=running_session.NOT_YET)

    for piece in running_session.follow(first, next_session=next_session):
        yield from notes[num_reported:]
        num_reported = len(notes)
        if isinstance(piece, bytes):
            yield piece


def _other_output_hint(folder: SessionFolder) -> str:
    """Names other outputs: the ranks of one machine of several share one file."""
    others = sorted(path.name for path in folder.path.glob("_output_node_*.txt"))
    return f"look at --rank 0, or at {', '.join(others)} of another machine" if others else "look at --rank 0"
