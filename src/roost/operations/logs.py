"""``logs``: what a run printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from roost.base.errors import NotFound
from roost.lab.output import output_of
from roost.lab.task import PENDING, STARTING
from roost.operations import intact, meant, running
from roost.operations.output import Output, tail_offset
from roost.package.package import Package

_TICK_SECONDS = 0.05


def logs(
    package: Path | str, *, follow: bool = False, lines: int | None = None, rank: int = 0
) -> Iterator[bytes]:
    """The output of a package, byte for byte; where it was too long to be kept whole, a line says so.

    Args:
        package: The package, or what its task is called by (`roost.operations.meant`).
        follow: Go on until the running session has ended; of a task that waits, until it was started and has.
        lines: Begin with the last so many lines; None: at the beginning.
        rank: Whose output.

    Yields:
        Pieces as they come; with ``follow`` also empty ones while nothing does, so that a caller may stop.

    Raises:
        NotFound: There is no such package or task, or no such rank has printed in it.
        UsageError: Several tasks are meant.
        DamagedPackage: With ``follow``: nobody can tell whether the session has ended.
        OSError: The output cannot be read.
    """
    found = meant.package_of(package)
    if follow:
        yield from _until_begun(found)
    opened = intact.opened(found) if follow else Package.open(found)
    path = Path(output_of(str(opened.output), rank))
    if rank and not path.exists():
        raise NotFound(f"no rank {rank} has printed here", where=opened.path, fix=_elsewhere(opened))
    offset = 0 if lines is None else tail_offset(path, lines)
    session = opened.sessions()[-1] if follow and opened.sessions() else None
    if session is not None:
        place = replace(running.session_of(opened, session.number, offset=offset), output=path)
        pieces = running.follow(place)
        yield from (piece for piece in pieces if isinstance(piece, bytes))
    else:
        with Output(path, offset=offset) as output:
            yield from output.new()


def _until_begun(package: Path) -> Iterator[bytes]:
    """Empty pieces while a task of the package waits."""
    while (task := meant.unended(package)) is not None and task.state in (PENDING, STARTING):
        yield b""
        time.sleep(_TICK_SECONDS)


def _elsewhere(package: Package) -> str:
    """Where else it may be: the ranks of one machine of several print together."""
    others = sorted(path.name for path in package.path.glob("_output_node_*.txt"))
    return f"look at --rank 0, or at {', '.join(others)} of another machine" if others else "look at --rank 0"
