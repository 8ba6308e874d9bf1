"""``attach``: follows a session that somebody else started, or oneself from a terminal that is gone."""

from __future__ import annotations

from pathlib import Path

from roost.base.errors import Refused
from roost.operations import intact
from roost.operations.output import tail_offset
from roost.operations.running import Running, newest


def attach(package: Path | str, *, lines: int = 10) -> Running:
    """What runs in a package now, to be followed from its last ``lines`` lines of output on.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: Nothing runs in it.
        RoostError: It has been starting for too long.
    """
    opened = intact.opened(package)
    session = newest(opened)
    if session is None or session.state != "running":
        ended = f"session {session.number} has ended: {session.state}" if session else "it has never run"
        raise Refused(
            f"nothing runs in this package; {ended}",
            where=opened.path,
            fix=f"look with `roost show` or `roost logs`, or go on with `roost continue {opened.path}`",
        )
    return Running(
        opened.path,
        session.number,
        request=opened.path / "sessions" / f"{session.number}.request.json",
        record=opened.path / "sessions" / f"{session.number}.json",
        output=opened.output,
        offset=tail_offset(opened.output, lines),
    )
