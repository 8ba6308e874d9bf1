"""The operation ``stop``: requests a running session to save and end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import RoostError
from roost.lab.sessions.session_control import request_stop
from roost.operations.reading import package_schema
from roost.operations.sessions.running_session import newest_session
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.package.sessions import Session

_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class StopPending:
    """An event: the session has not ended yet."""

    session: int
    step: int
    phase: str
    seconds: float
    """Since the request."""


@dataclass(frozen=True)
class StopResult:
    """The result of a stop request."""

    session: int | None
    state: str
    step: int | None
    was_running: bool


def stop(package: Path | str, *, now: bool = False) -> Iterator[StopPending | StopResult]:
    """Requests the running session to save at its next step edge and end, then reports its progress.

    Args:
        package: The package.
        now: Kill it; what was trained since the newest checkpoint is trained again on continue.

    Yields:
        `StopPending` several times a second, then one `StopResult`.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: The session runs on another machine.
        RoostError: The session has been starting for too long, or belongs to another user.
    """
    opened = package_schema.open_checked(package)
    session = newest_session(opened)
    if session is None or not _is_running(session):
        state = session.state if session else "new"
        yield StopResult(session.number if session else None, state, _step(opened), False)
        return
    request_stop(session, now=now)
    requested_at = time.monotonic()
    number = session.number
    while _is_running(session := next(one for one in opened.sessions() if one.number == number)):
        progress = live_progress.read(opened.progress)
        step, phase = (progress.step, progress.phase) if progress else (0, "starting")
        yield StopPending(session.number, step, phase, time.monotonic() - requested_at)
        time.sleep(_TICK_SECONDS)
    yield StopResult(session.number, session.state, _step(opened), True)


def may_be_stopped(package: Path) -> bool:
    """Whether a session of a package runs; not for a damaged one, or one that DLNest's own programs wrote."""
    try:
        session = newest_session(package_schema.open_checked(package))
    except RoostError:
        return False
    return session is not None and _is_running(session)


def _is_running(session: Session) -> bool:
    """Whether the session or its guard lives: the guard ends last, after the supervisor has completed the
    record."""
    return session.state == "running" or session.guard_is_alive


def _step(package: PackageFolder) -> int | None:
    progress = live_progress.read(package.progress)
    return progress.step if progress else None
