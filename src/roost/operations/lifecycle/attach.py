"""The operation ``attach``: follows a running session, from any terminal of its user."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from roost.base.errors import Refused
from roost.operations import resolve
from roost.operations.reading import package_schema
from roost.operations.reading.output_reader import tail_offset
from roost.operations.sessions.running_session import RunningSession, newest_session, running_session


def attach(package: Path | str, *, lines: int = 10) -> RunningSession:
    """Returns the running session of a package, or of a task that reads one, to be followed from its last
    ``lines`` lines of output on.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: No session is running, or it does not print into the package.
        RoostError: The session has been starting for too long.
    """
    opened = resolve.find_session_folder(package)
    if opened.is_package:
        opened = package_schema.open_checked(opened.path)
    session = newest_session(opened)
    if session is None or session.state != "running":
        ended = f"session {session.number} has ended: {session.state}" if session else "it has had no session"
        if not opened.is_package:
            raise Refused(f"this task does not run; {ended}", where=opened.path, fix="see `roost why`")
        raise Refused(
            f"no session of this package is running; {ended}",
            where=opened.path,
            fix="see `roost show` or `roost logs`, or continue with "
            f"`roost continue {quote(str(opened.path))}`",
        )
    if session.is_python:
        raise Refused(
            "a Python program has the package open, and prints elsewhere",
            where=opened.path,
            fix="look at the terminal where it was started; `roost show` gives its pid",
        )
    return running_session(opened, session.number, offset=tail_offset(opened.output, lines))
