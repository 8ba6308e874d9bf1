"""What runs under a supervisor, and following it by the files it writes: for whoever started it, and for
whoever comes by later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from roost.base.errors import RoostError
from roost.operations.reading.output_reader import Output
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.sessions import Session

_TICK_SECONDS = 0.05
_START_SECONDS = 20.0


@dataclass(frozen=True)
class RunningSession:
    """One session of a package, or one analysis of it."""

    package: Path
    number: int
    request: Path
    """What was asked, written by the operation."""
    record: Path
    """What its supervisor writes down."""
    output: Path
    """What it prints."""
    offset: int = 0
    """Where in the output to begin, in bytes."""

    def session(self) -> Session:
        """What is known of it now."""
        return sessions.read(self.request, self.record, number=self.number)


def running_session(package: PackageFolder, number: int, *, offset: int = 0) -> RunningSession:
    """Session ``number`` of a package, its output from ``offset`` on."""
    return RunningSession(
        package.path,
        number,
        request=package.path / "sessions" / f"{number}.request.json",
        record=package.path / "sessions" / f"{number}.json",
        output=package.output,
        offset=offset,
    )


NOT_YET = 0
"""Another session will follow, and has no number yet."""


def restarted_as(session: Session) -> int | None:
    """The session that was begun by itself because this one failed."""
    number = (session.record or {}).get("restarted_as")
    return number if isinstance(number, int) else None


def follow(
    running: RunningSession, *, next_session: Callable[[Session], int | None] = restarted_as
) -> Iterator[bytes | RunningSession | Session]:
    """What it prints from ``offset`` on, as it comes; at last the session that has ended. Where another one
    follows it goes on with that.

    Whoever takes these may stop at any time: what runs needs nobody who looks.

    Args:
        running: The first session.
        next_session: Gives which session follows one that has ended: its number, `NOT_YET`, or None.

    Yields:
        Output; empty pieces, twenty times a second, while there is none; each session that follows another;
        one `Session`.

    Raises:
        OSError: The output cannot be read.
    """
    while True:
        with Output(running.output, offset=running.offset) as output:
            guard_is_gone = False
            while True:
                # In this order: what was printed before the end was seen must still be read.
                session = running.session()
                yield from output.new()
                has_ended = session.state not in ("starting", "running")
                if has_ended and (guard_is_gone or not _awaits_guard(session)):
                    break
                guard_is_gone = has_ended and not session.guard_is_alive  # then once more: it may have told all
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
    """Whether its guard, if it lives, has still to say more of its end: that the supervisor was killed, for
    example, and that another session follows."""
    record = session.record or {}
    return session.state == "crashed" and "guard_pid" in record and "restarted_as" not in record


def _following_session(running: RunningSession, number: int, output: Output) -> RunningSession:
    """The session that follows; read on from where ``output`` is."""
    folder = running.record.parent
    request = folder / f"{number}.request.json"
    offset = output.offset
    if output.was_replaced():  # by a shorter one
        offset = int(
            (sessions.load_json(request) or {}).get("output_offsets", {}).get(running.output.name, 0)
        )
    return replace(running, number=number, request=request, record=folder / f"{number}.json", offset=offset)


def newest_session(package: PackageFolder) -> Session | None:
    """The newest session, once its supervisor has written it down; None when there is none.

    Raises:
        RoostError: It has been starting for too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        found = package.sessions()
        if not found or found[-1].state != "starting":
            return found[-1] if found else None
        if time.monotonic() > deadline:
            raise RoostError(
                f"session {found[-1].number} is still starting", where=package.path, fix="try again"
            )
        time.sleep(_TICK_SECONDS)
