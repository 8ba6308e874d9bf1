"""Follows the rows of a run while it grows. Each byte of its records is read once, whatever their length."""

from __future__ import annotations

import os
from pathlib import Path

from roost.package.records import Row, SessionFollower


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
