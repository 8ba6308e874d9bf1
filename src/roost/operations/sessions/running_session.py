"""The files of a session under a supervisor, and how to follow it by them; the process that started it and
any later reader use the same code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from roost.base.errors import NotFound, RoostError
from roost.operations.reading.output_reader import OutputReader
from roost.package import sessions
from roost.package.session_folder import SessionFolder
from roost.package.session_schema import SessionRequest
from roost.package.sessions import Session

_TICK_SECONDS = 0.05
_START_SECONDS = 20.0


@dataclass(frozen=True)
class RunningSession:
    """The files of one session of a package or session folder, or of one analysis."""

    package: Path
    number: int
    request: Path
    """The request, written by the operation."""
    record: Path
    """The record, written by the supervisor."""
    output: Path
    """Standard output and error."""
    offset: int = 0
    """Where to begin in the output, in bytes."""
    lock: Path | None = None
    """The lock that a session holds; None: an analysis, which has none."""

    @property
    def only_reads(self) -> bool:
        """Whether it only reads the package: its files are in a folder of their own."""
        return self.output.parent != self.package

    def session(self) -> Session:
        """Reads the current state of the session."""
        return sessions.read(self.request, self.record, number=self.number, lock=self.lock)


def running_session(folder: SessionFolder, number: int, *, offset: int = 0) -> RunningSession:
    """Returns session ``number`` of a session folder, with its output from ``offset`` on."""
    return RunningSession(
        folder.package_path,
        number,
        request=folder.session_files / f"{number}.request.json",
        record=folder.session_files / f"{number}.json",
        output=folder.output,
        offset=offset,
        lock=folder.path / sessions.LOCK_NAME,
    )


def require_not_deleted(package: Path) -> None:
    """Checks that a package is still there at the end of its session.

    Raises:
        NotFound: It was deleted.
    """
    if not (package / "request.json").exists():  # what ends the session may have made the folder
        what = "the package was deleted while its session ran"
        raise NotFound(what, received=str(package), fix="see whether the program deletes its folder")


NOT_YET = 0
"""Another session will follow, but has no number yet."""


def restarted_as(session: Session) -> int | None:
    """Returns the number of the session that was started automatically after this one failed; None if there
    is none."""
    number = session.recorded.restarted_as
    return number if isinstance(number, int) else None


def follow(
    running: RunningSession, *, next_session: Callable[[Session], int | None] = restarted_as
) -> Iterator[bytes | RunningSession | Session]:
    """Yields the output from ``offset`` on as it appears, then the ended session; if another session follows,
    continues with that one.

    The caller may stop at any time: the session does not depend on its readers.

    Args:
        running: The first session.
        next_session: Returns the session that follows one that has ended: its number, `NOT_YET`, or None.

    Yields:
        Output; empty pieces, twenty times a second, while there is none; each session that follows another;
            one `Session` at the end.

    Raises:
        OSError: The output cannot be read.
    """
    while True:
        with OutputReader(running.output, offset=running.offset) as output:
            guard_is_gone = False
            while True:
                # The state is read before the output, so that all output of an ended session is read.
                session = running.session()
                yield from output.read_new()
                has_ended = not session.is_live
                if has_ended and (guard_is_gone or not _awaits_guard(session)):
                    break
                guard_is_gone = (
                    has_ended and not session.guard_is_alive
                )  # then read once more: the guard may have completed it
                yield b""
                time.sleep(_TICK_SECONDS)
            while (number := next_session(session)) == NOT_YET:
                yield b""
                time.sleep(_TICK_SECONDS)
            following = _following_session(running, number, output) if number is not None else None
        if following is None:
            yield session
            return
        running = following
        yield running


def _awaits_guard(session: Session) -> bool:
    """Whether the session's guard, if it lives, has still to complete the record: for example that the
    supervisor was killed, and that another session follows."""
    record = session.recorded
    return session.state == "crashed" and "guard_pid" in record and record.restarted_as is None


def _following_session(running: RunningSession, number: int, output: OutputReader) -> RunningSession:
    """Returns the session that follows, with its output from the position of ``output`` on."""
    folder = running.record.parent
    request = folder / f"{number}.request.json"
    offset = output.offset
    if output.was_replaced():  # by a shorter file
        fields = SessionRequest.from_json(sessions.load_json(request) or {})
        offset = int(fields.output_offsets.get(running.output.name, 0))
    return replace(running, number=number, request=request, record=folder / f"{number}.json", offset=offset)


def newest_session(folder: SessionFolder) -> Session | None:
    """Returns the newest session, once its supervisor has written its record; None if there is none.

    Raises:
        RoostError: The session has been starting for too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        found = folder.sessions()
        if not found or found[-1].state != "starting":
            return found[-1] if found else None
        if time.monotonic() > deadline:
            raise RoostError(
                f"session {found[-1].number} is still starting", where=folder.path, fix="try again"
            )
        time.sleep(_TICK_SECONDS)
