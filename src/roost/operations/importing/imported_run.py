"""A run of another system, as its reader gives it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roost.package import sessions
from roost.package.records import ROW_FIELDS, Row

RunState = Literal["succeeded", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run of another system: settings, rows, and what was written about it."""

    system: str
    """The name of its format, such as wandb."""
    source: Path
    """The file or folder from which it was read."""
    name: str
    key: str = ""
    """Its id in its own system; empty: it has none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    """Ascending by step."""
    tags: Sequence[str] = ()
    note: str = ""
    state: RunState = "succeeded"
    started: float | None = None
    """Unix seconds; None: not known."""
    ended: float | None = None
    left_out: Sequence[str] = ()
    """What was not imported, a line for each kind of thing."""

    def digest(self) -> str:
        """Returns the SHA-256 of all that was read, whatever its place on the disk: by it a second import of
        the same run is noticed."""
        body = [
            self.system,
            self.key,
            self.settings,
            list(self.rows),
            list(self.tags),
            self.note,
            self.state,
            self.started,
            self.ended,
        ]
        text = json.dumps(body, sort_keys=True, default=str, allow_nan=True)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class RowMerger:
    """Makes rows of single values: those of one step share a row, unless a name comes again."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._open: dict[int, Row] = {}
        """The newest row of each step."""

    def add(self, step: int, name: str, value: float, time: float, *, epoch: int = 0) -> None:
        """Adds a value."""
        name = free_name(name)
        row = self._open.get(step)
        if row is None or name in row:
            row = self._open[step] = {"step": step, "epoch": epoch, "time": time}
            self._rows.append(row)
        row[name] = value

    def begin_again(self, step: int) -> None:
        """Drops the rows from a step on."""
        self._rows = [row for row in self._rows if row["step"] < step]
        self._open = {at: row for at, row in self._open.items() if at < step}

    def rows(self) -> list[Row]:
        """Returns the rows by step; those of one step in the order in which they began."""
        return sorted(self._rows, key=lambda row: row["step"])


def free_name(name: str) -> str:
    """Returns a name that a metric may have: that of a field of a row gets an underscore."""
    return f"{name}_" if name in ROW_FIELDS or not name else name


def stored_row(row: Row) -> Row:
    """Returns a row as a records file has it: numbers that are not finite are named, as JSON has none."""
    nonfinite = {
        name: repr(value)
        for name, value in row.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return {**row, "nonfinite": nonfinite} if nonfinite else row


def plain_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as plain data of JSON, with dotted keys as they are."""
    found = json.loads(sessions.to_json(dict(values)))
    assert isinstance(found, dict)
    return found
