"""``logs``: what a run printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from roost.base.errors import NotFound
from roost.lab.output import output_of
from roost.operations import intact, running
from roost.operations.output import Output, tail_offset
from roost.package.package import Package


def logs(
    package: Path | str, *, follow: bool = False, lines: int | None = None, rank: int = 0
) -> Iterator[bytes]:
    """The output of a package, byte for byte; where it was too long to be kept whole, a line says so.

    Args:
        package: The package.
        follow: Go on until the running session has ended.
        lines: Begin with the last so many lines; None: at the beginning.
        rank: Whose output.

    Yields:
        Pieces as they come; with ``follow`` also empty ones while nothing does, so that a caller may stop.

    Raises:
        NotFound: There is no such package, or no such rank has printed in it.
        DamagedPackage: With ``follow``: nobody can tell whether the session has ended.
        OSError: The output cannot be read.
    """
    opened = intact.opened(package) if follow else Package.open(package)
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


def _elsewhere(package: Package) -> str:
    """Where else it may be: the ranks of one machine of several print together."""
    others = sorted(path.name for path in package.path.glob("_output_node_*.txt"))
    return f"look at --rank 0, or at {', '.join(others)} of another machine" if others else "look at --rank 0"
