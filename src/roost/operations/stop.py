"""``stop``: asks a running session to save and end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import Refused, RoostError
from roost.operations import intact
from roost.package import progress
from roost.package.package import Package
from roost.package.sessions import Session

_TICK_SECONDS = 0.05
_START_SECONDS = 20.0


@dataclass(frozen=True)
class Waiting:
    """The session was asked, and has not ended yet."""

    session: int
    step: int
    phase: str
    seconds: float
    """Since it was asked."""


@dataclass(frozen=True)
class Ended:
    """It runs no more."""

    session: int | None
    state: str
    step: int | None
    was_running: bool


def stop(package: Path | str, *, now: bool = False) -> Iterator[Waiting | Ended]:
    """Asks the running session to save at its next step edge and end; then tells how that goes.

    Args:
        package: The package.
        now: End it at once; what was trained since the newest checkpoint is trained again on continue.

    Yields:
        `Waiting` several times a second, then one `Ended`.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: It runs on another machine.
        RoostError: It has been starting for too long, or does not belong to you.
    """
    opened = intact.opened(package)
    session = _recorded(opened)
    if session is None or session.state != "running":
        state = session.state if session else "new"
        yield Ended(session.number if session else None, state, _step(opened), False)
        return
    _signal(session, signal.SIGQUIT if now else signal.SIGTERM)
    asked = time.monotonic()
    number = session.number
    while (session := next(one for one in opened.sessions() if one.number == number)).state == "running":
        seen = progress.read(opened.progress)
        step, phase = (seen.step, seen.phase) if seen else (0, "starting")
        yield Waiting(session.number, step, phase, time.monotonic() - asked)
        time.sleep(_TICK_SECONDS)
    yield Ended(session.number, session.state, _step(opened), True)


def _recorded(package: Package) -> Session | None:
    """The newest session, once its supervisor has written it down."""
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


def _signal(session: Session, number: signal.Signals) -> None:
    record = session.record or {}
    if record["host"] != socket.gethostname():
        raise Refused(f"it runs on host {record['host']}", fix="stop it there")
    try:
        # Between the look at the state and this line the pid can only have gone: it is not reused so fast.
        os.kill(int(record["pid"]), number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise RoostError(f"the run of pid {record['pid']} is not yours", fix="ask its owner") from error


def _step(package: Package) -> int | None:
    seen = progress.read(package.progress)
    return seen.step if seen else None
