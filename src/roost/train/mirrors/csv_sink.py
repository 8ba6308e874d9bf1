"""The sink that writes all rows as one CSV table."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.package import records
from roost.package.records import Row
from roost.train.mirrors.sink import SessionEnd, SinkPosition

_LEADING_COLUMNS = ("step", "epoch", "time")


class CsvSink:
    """Writes a line for each row and a column for each metric, in order of first occurrence; a cell is empty
    if the row lacks the metric. Numbers have all their digits, so they are read back bit for bit.

    A metric that occurs later widens the table, and a rewind shortens it: then the whole table is replaced by
    one rename. Otherwise lines are appended; only a full disk can leave a torn line. The table is made from
    the records when a session begins, so no state is kept.

    Args:
        path: The file of the table; its folder is created.
        below: As for `durable.make_folders`: the package, which does not come back once it was removed.
    """

    can_rewind = True

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        self._path, self._below = path, below
        self._columns: dict[str, None] = {}
        """The names in their order: a package may have very many."""
        self._rows: list[dict[str, Any]] = []
        """Rows that are not written yet."""
        self._fd: int | None = None

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        durable.make_folders(self._path.parent, below=self._below)
        return SinkPosition()

    def rewind(self, step: int) -> None:
        kept = [row for row in self._read() if int(row["step"]) <= step] if step >= 0 else []
        self._leave()
        self._columns, self._rows = dict.fromkeys(_LEADING_COLUMNS), []
        self._put(kept)

    def write_row(self, row: Row) -> None:
        first = {name: row[name] for name in _LEADING_COLUMNS if name in row}
        self._put([{**first, **records.values(row)}])

    def write_media(self, step: int, path: Path) -> None:
        """Ignores media; a table cannot contain them."""

    def _put(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._rows.append(row)
            if new := [name for name in row if name not in self._columns]:
                self._rows[:0] = self._read() if self._fd is not None else []
                self._leave()
                self._columns |= dict.fromkeys(new)

    def flush(self) -> None:
        if self._fd is None:
            durable.write(self._path, self._lines([dict(zip(self._columns, self._columns, strict=True))]))
            self._fd = durable.open_append(self._path)
        if self._rows:
            durable.append(self._fd, self._lines([]))

    def _lines(self, before: list[dict[str, Any]]) -> bytes:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows([*before, *self._rows])
        self._rows = []
        return text.getvalue().encode()

    def _read(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self._path.open(newline="") as file:
            return list(csv.DictReader(file))
        return []

    def _leave(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def state(self) -> dict[str, Any]:
        return {}

    def close(self, end: SessionEnd | None) -> None:
        self._leave()
