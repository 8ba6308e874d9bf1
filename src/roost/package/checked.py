"""What `roost check` has found out: written by its worker as it goes, read by whoever asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable, regular

NAME = "check.jsonl"
"""In the package that a check is made in."""


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done, or begun."""

    name: str
    state: str
    """begun, done or failed."""
    seconds: float = 0.0
    seen: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file: one of these."""

    thing: Thing | None = None
    warning: str = ""
    measured: dict[str, Any] = {}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    things: list[Thing]
    """Those that were done or have failed, in their order, each once."""
    last: str
    """The one that was begun last: its process died in it, or it failed."""
    warnings: list[str]
    measured: dict[str, Any]


class Writer:
    """Appends to the file, which is made.

    Args:
        package: The package's folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, package: Path) -> None:
        self._fd = durable.open_append(package / NAME)

    def write(self, line: Line) -> None:
        """Appends one line. It survives the death of the process.

        Raises:
            OSError: It cannot be written.
        """
        durable.append(self._fd, msgspec.json.encode(line) + b"\n")


def read(package: Path) -> Found:
    """What stands in the file now. No file is an empty one."""
    things: list[Thing] = []
    last = ""
    warnings: list[str] = []
    measured: dict[str, Any] = {}
    for line in _lines(package / NAME):
        if line.thing is not None and line.thing.state == "begun":
            last = line.thing.name
        elif line.thing is not None:
            things.append(line.thing)
        warnings += [line.warning] if line.warning else []
        measured |= line.measured
    return Found(things=things, last=last, warnings=warnings, measured=measured)


def _lines(file: Path) -> list[Line]:
    try:
        rows = bytes(regular.read(file)).splitlines()
    except OSError:
        return []
    found = []
    for row in rows:
        try:
            found.append(msgspec.json.decode(row, type=Line))
        except ValueError:  # torn, by a full disk
            continue
    return found
