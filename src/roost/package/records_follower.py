"""The history of a run while it grows: each byte of its records is read once, however long they are."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

from roost.package import records
from roost.package.records import Columns, SessionFollower, Row


class RowsFollower:
    """Reads the rows of all sessions, each line once.

    Args:
        folder: The package's ``records``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[int, SessionFollower] = {}
        self._before: Row = {}

    def new(self) -> list[tuple[int, Row]]:
        """Session and row of what came since the last call, in the order in which it was written; among them
        a row that has a ``start_step`` where a session began, or went back."""
        found: list[tuple[int, Row]] = []
        for number in self._growing():
            path = self._folder / f"{number}.jsonl"
            for row in self._followers.setdefault(number, SessionFollower(path)).new_rows():
                # The disk may have been full for the line's end alone; then the row was written again.
                if row != self._before:
                    found.append((number, row))
                self._before = row
        return found

    def _growing(self) -> list[int]:
        """The newest session of those that were read, and all after it: one ends before the next begins."""
        try:
            paths = [Path(entry.name) for entry in os.scandir(self._folder)]
        except OSError:
            return []
        numbers = [int(path.stem) for path in paths if path.suffix == ".jsonl" and path.stem.isdecimal()]
        return sorted(number for number in numbers if number >= max(self._followers, default=0))


class HistoryFollower:
    """What `records.fold` gives of a ``records`` folder, but for its rows, kept up to date.

    Args:
        folder: Of a package; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._rows = RowsFollower(folder)
        self.columns = Columns()

    def update(self) -> bool:
        """Reads on; gives whether anything came."""
        new = self._rows.new()
        for session, row in new:
            if "start_step" in row:
                self._begin(session, row["start_step"])
            else:
                for name, value in records.values(row).items():
                    records.add_value(self.columns.of(name), name, row["step"], value)
        return bool(new)

    def _begin(self, session: int, step: int) -> None:
        """A session goes on from a step, or goes back to it: what was recorded after it counts no more."""
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
