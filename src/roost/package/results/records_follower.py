"""Follows the history of a run while it grows. Each byte of its records is read once, whatever their
length."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

from roost.package import records
from roost.package.records import Columns, Row, SessionFollower


class RowsFollower:
    """Reads the rows of all sessions, each line once.

    Args:
        folder: The package's ``records``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[int, SessionFollower] = {}
        self._before: Row = {}

    def new_rows(self) -> list[tuple[int, Row]]:
        """Returns session and row of everything written since the last call, in that order. A row with a
        ``start_step`` marks that a session began at, or went back to, that step."""
        found: list[tuple[int, Row]] = []
        for number in self._growing():
            path = self._folder / f"{number}.jsonl"
            for row in self._followers.setdefault(number, SessionFollower(path)).new_rows():
                # If only the line's end did not fit on a full disk, the row was written a second time.
                if row != self._before:
                    found.append((number, row))
                self._before = row
        return found

    def _growing(self) -> list[int]:
        """The newest session read so far, and all after it: a session ends before the next one begins."""
        try:
            paths = [Path(entry.name) for entry in os.scandir(self._folder)]
        except OSError:
            return []
        numbers = [int(path.stem) for path in paths if path.suffix == ".jsonl" and path.stem.isdecimal()]
        return sorted(number for number in numbers if number >= max(self._followers, default=0))


class HistoryFollower:
    """The result of `records.fold` without its rows, kept up to date.

    Args:
        folder: The folder ``records`` of a package; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._rows = RowsFollower(folder)
        self.columns = Columns()

    def update(self) -> bool:
        """Reads the new rows; returns whether there were any."""
        new = self._rows.new_rows()
        for session, row in new:
            if "start_step" in row:
                self._begin(session, row["start_step"])
            else:
                for name, value in records.values(row).items():
                    records.add_value(self.columns.group_of(name), name, row["step"], value)
        return bool(new)

    def _begin(self, session: int, step: int) -> None:
        """Removes the values after a step from which a session continues, or to which it goes back."""
        for series in (self.columns.series, self.columns.perf, self.columns.stats):
            for name in list(series):
                steps, values = series[name]
                kept = bisect_right(steps, step)
                del steps[kept:], values[kept:]
                if not steps:
                    del series[name]
        starts = dict(self.columns.starts)
        starts[session] = min(step, starts.get(session, step))
        self.columns.starts = sorted(starts.items())
