"""``attach``: follows a session that somebody else started, or oneself from a terminal that is gone."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from roost.base.errors import Refused
from roost.operations.reading import package_schema
from roost.operations.reading.output_reader import tail_offset
from roost.operations.sessions.running_session import RunningSession, newest_session, running_session


def attach(package: Path | str, *, lines: int = 10) -> RunningSession:
    """What runs in a package now, to be followed from its last ``lines`` lines of output on.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: Nothing runs in it, or something that does not print into it.
        RoostError: It has been starting for too long.
    """
    opened = package_schema.opened(package)
    session = newest_session(opened)
    if session is None or session.state != "running":
        ended = f"session {session.number} has ended: {session.state}" if session else "it has never run"
        raise Refused(
            f"nothing runs in this package; {ended}",
            where=opened.path,
            fix="look with `roost show` or `roost logs`, or go on with "
            f"`roost continue {quote(str(opened.path))}`",
        )
    if session.is_python:
        raise Refused(
            "a program of Python has the package open, and prints elsewhere",
            where=opened.path,
            fix="look where it was started; `roost show` names its pid",
        )
    return running_session(opened, session.number, offset=tail_offset(opened.output, lines))
