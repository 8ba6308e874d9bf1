"""``logs``: what a run printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from roost.operations import intact
from roost.operations.output import Output, tail_offset
from roost.package.package import Package

_TICK_SECONDS = 0.05
_ENDED = frozenset(["new", "succeeded", "failed", "stopped", "crashed"])


def logs(package: Path | str, *, follow: bool = False, lines: int | None = None) -> Iterator[bytes]:
    """The output of a package, byte for byte; where it was too long to be kept whole, a line says so.

    Args:
        package: The package.
        follow: Go on until the running session has ended.
        lines: Begin with the last so many lines; None: at the beginning.

    Yields:
        Pieces as they come; with ``follow`` also empty ones while nothing does, so that a caller may stop.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: With ``follow``: nobody can tell whether the session has ended.
        OSError: The output cannot be read.
    """
    opened = Package.open(package)
    offset = 0 if lines is None else tail_offset(opened.output, lines)
    with Output(opened.output, offset=offset) as output:
        while True:
            # In this order: what was printed before the end was seen must still be read.
            ended = not follow or _state(opened) in _ENDED
            yield from output.new()
            if ended:
                return
            yield b""
            time.sleep(_TICK_SECONDS)


def _state(package: Package) -> str:
    found = intact.sessions(package.path)
    return found[-1].state if found else "new"
