"""The findings of `roost check` and `roost show --data`, in a file that their workers write and the
operations read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read

NAME = "check.jsonl"
"""The name of the file, in the package that is checked."""


class CheckStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of a check: imports, data, first step, save, …"""

    name: str
    state: Literal["begun", "done", "failed"]
    seconds: float = 0.0
    seen: str = ""
    """A short description of the result."""


class FindingLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file, with one of these fields."""

    stage: CheckStage | None = None
    warning: str = ""
    measured: dict[str, Any] = {}


class CheckFindings(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of the file together."""

    stages: list[CheckStage]
    """The stages that are done or failed, in their order, each once."""
    last: str
    """The stage that was begun last; in a check that did not finish, the one that failed."""
    warnings: list[str]
    """Problems that would not end the run."""
    measured: dict[str, Any]
    """Measured values by name; times in seconds, memory in MB."""


class FindingsWriter:
    """Creates the file, and appends to it.

    Args:
        package: The package's folder.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, package: Path) -> None:
        self._fd = durable.open_append(package / NAME)

    def write(self, line: FindingLine) -> None:
        """Appends one line. It survives the death of the process.

        Raises:
            OSError: The line cannot be written.
        """
        durable.append(self._fd, msgspec.json.encode(line) + b"\n")


def read(package: Path) -> CheckFindings:
    """Returns the findings in a package so far; empty if the file does not exist, or cannot be read."""
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
