"""What `roost check` and `roost show --data` find out: their workers write it, the operations read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read

NAME = "check.jsonl"
"""The file, in the package that is checked."""


class CheckStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a check: imports, data, first step, save, …"""

    name: str
    state: Literal["begun", "done", "failed"]
    seconds: float = 0.0
    seen: str = ""
    """What came of it, in a few words."""


class FindingLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file, which holds one of these."""

    stage: CheckStage | None = None
    warning: str = ""
    measured: dict[str, Any] = {}


class CheckFindings(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of the file together."""

    stages: list[CheckStage]
    """Those that were done or failed, in their order, each once."""
    last: str
    """The stage that was begun last; in a check that is not ready it is the one that failed."""
    warnings: list[str]
    """What the run would get wrong without ending."""
    measured: dict[str, Any]
    """Numbers by name; times in seconds, memory in MB."""


class FindingsWriter:
    """Makes the file, and appends to it.

    Args:
        package: The package's folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, package: Path) -> None:
        self._fd = durable.open_append(package / NAME)

    def write(self, line: FindingLine) -> None:
        """Appends one line. It survives the death of the process.

        Raises:
            OSError: It cannot be written.
        """
        durable.append(self._fd, msgspec.json.encode(line) + b"\n")


def read(package: Path) -> CheckFindings:
    """What the file of a package holds so far; nothing where there is no file, or none that can be read."""
    stages: list[CheckStage] = []
    last = ""
    warnings: list[str] = []
    measured: dict[str, Any] = {}
    for line in _lines(package / NAME):
        if line.stage is not None and line.stage.state == "begun":
            last = line.stage.name
        elif line.stage is not None:
            stages.append(line.stage)
        warnings += [line.warning] if line.warning else []
        measured |= line.measured
    return CheckFindings(stages=stages, last=last, warnings=warnings, measured=measured)


def _lines(file: Path) -> list[FindingLine]:
    try:
        rows = bytes(safe_read.read(file)).splitlines()
    except OSError:
        return []
    found = []
    for row in rows:
        try:
            found.append(msgspec.json.decode(row, type=FindingLine))
        except ValueError:  # torn, by a full disk
            continue
    return found
