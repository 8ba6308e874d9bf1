"""All rows as one table."""

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
    """A line for each row, a column for each metric, in the order in which they came; empty where a row has
    none. Numbers are written with all their digits, so they read back bit for bit.

    A metric that comes later widens the whole table: it is written anew, in one rename, as is one whose end
    falls away. Between that it is appended to, and never torn but by a full disk. It is made from the records
    when a session begins, so nothing needs to be remembered of it.

    Args:
        path: The table; its folder is made.
    """

    can_rewind = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        """Not written yet."""
        self._fd: int | None = None

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        durable.make_folders(self._path.parent)
        return SinkPosition()

    def rewind(self, step: int) -> None:
        kept = [row for row in self._read() if int(row["step"]) <= step] if step >= 0 else []
        self._leave()
        self._columns, self._rows = list(_LEADING_COLUMNS), []
        self._put(kept)

    def write_row(self, row: Row) -> None:
        first = {name: row[name] for name in _LEADING_COLUMNS if name in row}
        self._put([{**first, **records.values(row)}])

    def write_media(self, step: int, path: Path) -> None:
        """A table has no place for them."""

    def _put(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._rows.append(row)
            if new := [name for name in row if name not in self._columns]:
                self._rows[:0] = self._read() if self._fd is not None else []
                self._leave()
                self._columns += new

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
