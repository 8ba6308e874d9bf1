"""Rows that a program appends to CSV files. A file counts if its header has a column of steps or epochs: any
other one is probably data."""

# Standard library only

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_STEP_COLUMNS = ("step", "global_step", "iteration", "iter", "epoch", "round")
_MAX_READ = 1 << 22
_MAX_MARK = 200
_MAX_COLUMNS = 1000


class CsvRow(NamedTuple):
    """A row of numbers."""

    step: int | None
    metrics: dict[str, float]


class CsvFile:
    """Reads new rows of one file again and again.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._mark = b""
        self._names: list[str] | None = None
        self._step_column = ""
        self._seen: set[int] = set()
        self._is_again = False

    def new_rows(self) -> Iterator[CsvRow]:
        """Yields the rows that were completed since the last call. Of a file that was written again from its
        beginning, as pandas and Lightning do in each epoch, it yields those that it did not have before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset - len(self._mark))
                if file.read(len(self._mark)) != self._mark:
                    self._offset, self._mark, self._names, self._is_again = 0, b"", None, True
                file.seek(self._offset)
                data = file.read(_MAX_READ)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        taken = end if end or len(data) < _MAX_READ else len(data)
        self._offset += taken
        self._mark = (self._mark + data[:taken])[-_MAX_MARK:]
        csv.field_size_limit(_MAX_READ)
        lines = data[:end].decode(errors="replace").splitlines()
        for cells in csv.reader(lines):
            if self._names is None:
                self._read_header(cells)
            elif self._step_column:
                row = self._row(cells)
                number = hash(repr(row))
                if not (self._is_again and number in self._seen):
                    yield row
                self._seen.add(number)

    def _read_header(self, cells: list[str]) -> None:
        self._names = [cell.strip() for cell in cells[:_MAX_COLUMNS]]
        lower = {name.lower(): name for name in self._names}
        self._step_column = next((lower[one] for one in _STEP_COLUMNS if one in lower), "")

    def _row(self, cells: list[str]) -> CsvRow:
        found: dict[str, float] = {}
        for name, cell in zip(self._names or (), cells, strict=False):
            try:
                found[name] = float(cell)
            except ValueError:  # empty, or a text
                continue
        step = found.pop(self._step_column, None)
        is_count = step is not None and step == step and abs(step) < 2**53
        others = {name: value for name, value in found.items() if name.lower() not in _STEP_COLUMNS and name}
        return CsvRow(int(step) if step is not None and is_count else None, others)
