"""A package is taken over from a session of another machine: one that is gone, or one that is asked to
stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from roost.base.text.durations import format_duration
from roost.package import sessions
from roost.package.owner import other_owner, owner_file
from roost.package.owner.other_owner import OtherOwner, OwnerLooks
from roost.package.owner.owner_file import HEARTBEAT_SECONDS
from roost.package.session_schema import ENDED_STATES, SessionRecord

STOP_SECONDS = 3.0 * HEARTBEAT_SECONDS
"""How long a session that lost its package may take to notice it and to end."""
_TICK_SECONDS = 0.25
Report = Callable[[str, int, int], None]
"""Receives what is waited for, and how many seconds of how many have passed."""


def _ignore(what: str, done: int, total: int) -> None:
    return


def require_no_owner(package: Path, *, report: Report = _ignore) -> None:
    """Checks that no living session of another machine owns a package, of which the caller has the lock.
    Waits for the second look at an owner that seems to be gone.

    Raises:
        Refused: The owner gives signs of life.
        OSError: As for `other_owner.find_other`.
    """
    looks, wait = OwnerLooks(), 0.0
    while (other := other_owner.find_other(package)) is not None:
        left = looks.seconds_until_gone(other)
        if left == 0.0:
            return
        wait = wait or left
        report(f"seconds without a sign of life of {other.name}", int(wait - left), int(wait))
        time.sleep(min(left, _TICK_SECONDS))


def take_over(package: Path, *, steal: bool, token: str, report: Report = _ignore) -> str | None:
    """Takes a package over from the session of another machine that owns it, if there is one: one that is
    gone, or with ``steal`` a living one. Waits until that one has ended; if it cannot answer, the package is
    taken over without an answer.

    Args:
        package: The package.
        steal: Whether to take it from a living session.
        token: The token of the session that is about to begin.
        report: Receives what is waited for.

    Returns:
        A line for the user; None if there was no other owner.

    Raises:
        Refused: A living session owns the package, and ``steal`` is not given; or another machine takes it
            over at the same moment.
        OSError: The package cannot be written.
    """
    other = other_owner.find_other(package)
    if other is None:
        return None
    if not (steal or other.is_silent):
        raise other.refusal()
    folder = package / "sessions"
    session = sessions.next_number(folder)
    owner_file.claim(package, session=session, token=token, known=other.owner.token)
    if other.is_silent:
        return gone_line(other)
    deadline = time.monotonic() + STOP_SECONDS
    while not _is_over(folder, other.owner.session):
        left = deadline - time.monotonic()
        if left <= 0:
            return (
                f"taken over from {other.name}, which did not confirm within {STOP_SECONDS:g} s "
                "that it has stopped: it is off, or cut off; should it still run, it saves nothing any more"
            )
        report(f"seconds until {other.name} stops", int(STOP_SECONDS - left), int(STOP_SECONDS))
        time.sleep(_TICK_SECONDS)
    return f"taken over from {other.name}, which has stopped"


def gone_line(other: OtherOwner) -> str:
    """Returns the line about a package that is taken from an owner that is gone."""
    idle = format_duration(other.idle_seconds)
    return f"taken over from {other.name}, which gave no sign of life for {idle}"


def _is_over(folder: Path, session: int) -> bool:
    record = SessionRecord.load(os.fspath(folder / f"{session}.json"))
    return record is not None and record.state in ENDED_STATES
