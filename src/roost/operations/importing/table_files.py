"""Runs in tables: CSV and Parquet files with a row for each step."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roost.base import safe_read
from roost.base.errors import ConfigError
from roost.base.text.word_list import join_names
from roost.operations.importing.imported_run import ImportedRun, free_name
from roost.package.records import MAX_BYTES, Row
from roost.train.mirrors.mirror_kinds import require_library

_STEP_COLUMNS = ("step", "_step", "global_step", "trainer/global_step", "iteration", "iter", "epoch", "round")
_EPOCH_COLUMNS, _TIME_COLUMNS = ("epoch",), ("time", "_timestamp", "timestamp", "wall_time")
_DELIMITERS = ",;\t|"
_INTEGER = re.compile(r"[+-]?\d{1,18}")


def read_csv(path: Path) -> Iterator[ImportedRun]:
    """Yields the run of a CSV file, whatever its delimiter.

    Raises:
        ConfigError: It is no table, or has no row of numbers.
        OSError: It cannot be read.
    """
    text = safe_read.read(path, max_bytes=MAX_BYTES).decode("utf-8-sig", errors="replace")
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(1 << 27)
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header = [name.strip() for name in next(lines, [])]
        cells = [line for line in lines if line]
    except csv.Error as error:
        raise ConfigError(f"the table cannot be read: {error}", where=path) from None
    is_cut = bool(cells) and len(cells[-1]) < len(header) and not text.endswith("\n")
    if is_cut:  # by the kill of the program that wrote it
        cells.pop()
    wrong = next((n for n, line in enumerate(cells, start=2) if len(line) != len(header)), None)
    if wrong is not None:
        what = f"row {wrong} has {len(cells[wrong - 2])} cells, the header {len(header)}"
        raise ConfigError(what, where=path, fix="write the table again, with all cells of each row")
    if repeated := [name for name, number in Counter(header).items() if number > 1 and name]:
        fix = "give each column a name of its own: of two with one name only one would be imported"
        raise ConfigError(f"several columns are called {join_names(repeated)}", where=path, fix=fix)
    columns = {name: [line[at] for line in cells] for at, name in enumerate(header)}
    run = _run("csv", path, {name: [_number(cell) for cell in one] for name, one in columns.items()})
    yield replace(run, left_out=[*run.left_out, "the last line, which was cut"]) if is_cut else run


def _number(cell: str) -> Any:
    """The number of a cell; None of an empty one; else the text."""
    text = cell.strip()
    if not text:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return {"true": 1, "false": 0}.get(text.lower(), text)


def read_parquet(path: Path) -> Iterator[ImportedRun]:
    """Yields the run of a Parquet file.

    Raises:
        ConfigError: pyarrow is not installed, or cannot read the file; or no row has numbers.
    """
    require_library("pyarrow", "--format", extra="data")
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        what = " ".join(str(error).split())  # lines of several libraries
        raise ConfigError(f"the table cannot be read: {what}", where=path, fix="write it again") from None
    yield _run("parquet", path, {name: table.column(name).to_pylist() for name in table.column_names})


def _run(system: str, path: Path, columns: Mapping[str, Sequence[Any]]) -> ImportedRun:
    number = max((len(one) for one in columns.values()), default=0)
    lower = {name.lower(): name for name in columns}
    step = _first(lower, _STEP_COLUMNS)
    at = _first(lower, _TIME_COLUMNS)
    epoch = _first(lower, _EPOCH_COLUMNS)
    written = path.stat().st_mtime
    constant = {name: one[0] for name, one in columns.items() if _is_constant_text(one)}
    ignored: Counter[str] = Counter()
    rows: list[Row] = []
    for index in range(number):
        given = {name: one[index] for name, one in columns.items()}
        values = {}
        for name, value in given.items():
            if name in (step, at, epoch) or name in constant or value is None or not name:
                continue
            if _is_number(value):
                values[free_name(name)] = int(value) if isinstance(value, bool) else value
            else:
                ignored[name] += 1
        row = {
            "step": _count(given.get(step or ""), index),
            "epoch": _count(given.get(epoch or ""), 0),
            "time": _seconds(given.get(at or ""), written),
        }
        if values:
            rows.append({**row, **values})
    if not rows:
        fix = "its first line names the columns; a column of steps is called step, iteration or epoch"
        raise ConfigError("the table has no row of numbers", where=path, fix=fix)
    left_out = [f"texts in {join_names(sorted(ignored))}"] if ignored else []
    left_out += [] if step is not None else ["no column of steps: rows are numbered"]
    return ImportedRun(
        system=system,
        source=path,
        name=path.stem,
        settings=constant,
        rows=sorted(rows, key=lambda row: row["step"]),
        left_out=left_out,
        started=rows[0]["time"] if at is not None else None,
        ended=rows[-1]["time"] if at is not None else written,
    )


def _first(lower: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((lower[name] for name in names if name in lower), None)


def _is_constant_text(column: Sequence[Any]) -> bool:
    """Whether each row has the same text, which is then a setting."""
    return bool(column) and isinstance(column[0], str) and all(one == column[0] for one in column)


def _is_number(value: object) -> bool:
    return isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63)


def _count(value: object, default: int) -> int:
    is_whole = isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2**53
    return int(value) if is_whole else default  # type: ignore[call-overload]


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else default
