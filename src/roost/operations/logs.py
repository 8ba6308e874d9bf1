"""``logs``: what a run printed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from roost.base import regular
from roost.operations import intact
from roost.package.package import Package

_CHUNK = 1 << 16
_TICK_SECONDS = 0.05
_ENDED = frozenset(["new", "succeeded", "failed", "stopped", "crashed"])


def logs(package: Path | str, *, follow: bool = False, lines: int | None = None) -> Iterator[bytes]:
    """The output of a package, byte for byte.

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
    while True:
        # In this order: what was printed before the end was seen must still be read.
        ended = not follow or _state(opened) in _ENDED
        for piece in read_from(opened.output, offset):
            offset += len(piece)
            yield piece
        if ended:
            return
        yield b""
        time.sleep(_TICK_SECONDS)


def _state(package: Package) -> str:
    found = intact.sessions(package.path)
    return found[-1].state if found else "new"


def read_from(path: Path, offset: int) -> Iterator[bytes]:
    """What stands in a file from ``offset`` on; nothing while there is no file.

    Raises:
        OSError: It cannot be read.
    """
    try:
        fd = regular.open_fd(path)
    except FileNotFoundError:
        return
    try:
        while piece := os.pread(fd, _CHUNK, offset):
            offset += len(piece)
            yield piece
    finally:
        os.close(fd)


def tail_offset(path: Path, lines: int) -> int:
    """Where the last ``lines`` lines of a file begin, in bytes; reads from its end only."""
    try:
        fd = regular.open_fd(path)
    except FileNotFoundError:
        return 0
    with open(fd, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if lines <= 0:
            return size
        # A line that is not ended yet counts: then there is one newline less to pass.
        wanted = lines
        end = size
        while end:
            start = max(0, end - _CHUNK)
            piece = os.pread(file.fileno(), end - start, start)
            if end == size and piece.endswith(b"\n"):
                wanted += 1
            at = len(piece)
            while (at := piece.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
                if wanted == 0:
                    return start + at + 1
            end = start
    return 0
