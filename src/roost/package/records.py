"""The records of a run: one JSON line per row, one append-only file per session.

A row survives the death of the process once it is written, and a power cut once `RecordsWriter.sync` was
called, which happens before a checkpoint commits. A session that continues from step N hides the rows of
earlier sessions after N; the files themselves are never rewritten.
"""

from __future__ import annotations

import math
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable, safe_read

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Row = dict[str, Any]
"""A decoded line of a records file."""


class RecordsWriter:
    """Appends the rows of one session.

    Args:
        path: ``records/<n>.jsonl``; must not exist.
        session: The session's number.
        start_step: The step from which this session continues.
        data_order: A digest of the order of the training samples; None: unknown.
    """

    def __init__(self, path: Path, *, session: int, start_step: int, data_order: str | None = None) -> None:
        self._fd = durable.open_append(path)
        self._unwritten: list[bytes] = []
        self._session = session
        header: Row = {"session": session, "start_step": start_step, "time": round(time.time(), 3)}
        header |= {} if data_order is None else {"data_order": data_order}
        try:
            durable.append(self._fd, _encode(header) + b"\n")
        except OSError:
            os.close(self._fd)
            raise

    def row(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Appends one row; a value that is not finite is written as null and named under ``nonfinite``.

        Raises:
            OSError: The row could not be written (disk full). It is kept and written with the next one.
        """
        body: dict[str, Any] = {"step": step, "epoch": epoch, "time": round(time.time(), 3), **values}
        nonfinite = {name: repr(value) for name, value in values.items() if not math.isfinite(value)}
        if nonfinite:
            body["nonfinite"] = nonfinite  # msgspec writes NaN and infinity as null
        self._unwritten.append(_encode(body) + b"\n")
        self._flush()

    def go_back(self, step: int) -> None:
        """Records that the session returns to an earlier step: its rows after that no longer count.

        Raises:
            OSError: The line could not be written. It is kept and written with the next row.
        """
        header = {"session": self._session, "start_step": step, "time": round(time.time(), 3)}
        self._unwritten.append(_encode(header) + b"\n")
        self._flush()

    def _flush(self) -> None:
        while self._unwritten:
            try:
                durable.append(self._fd, self._unwritten[0])
            except OSError:
                # The file may end with half a line now, so the next write begins with a new line.
                self._unwritten[0] = b"\n" + self._unwritten[0].lstrip(b"\n")
                raise
            del self._unwritten[0]

    def sync(self) -> None:
        """Makes all rows so far durable.

        Raises:
            OSError: A row could not be written or synced.
        """
        self._flush()
        durable.sync(self._fd)

    def close(self) -> None:
        """Syncs and closes the file; the writer cannot be used afterwards.

        Raises:
            OSError: See `sync`; the file is closed in any case.
        """
        try:
            self.sync()
        finally:
            os.close(self._fd)


@dataclass
class Columns:
    """The history of a run by columns: for each metric, the steps (ascending) and the values at them."""

    series: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    """Every visible row in order, as written (non-finite values as floats)."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """For each session its number and the step from which it continued."""
    torn: int = 0
    """Lines that could not be read: at most the last one of a session that was killed while writing."""
    perf: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    """Like ``series``, the columns that begin with `PERF`: times and memory of the run."""

    stats: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    """Like ``series``, the columns that begin with `STATS`."""

    def group_of(self, name: str) -> dict[str, tuple[list[int], list[float]]]:
        """Returns ``series``, ``perf`` or ``stats``: the one that contains columns of this name."""
        return self.perf if name.startswith(PERF) else self.stats if name.startswith(STATS) else self.series

    def last(self) -> dict[str, float]:
        """Returns the newest value of every metric."""
        return {name: values[-1] for name, (_, values) in self.series.items()}


MAX_BYTES = 4 << 30
"""A larger file is not read."""
_TAIL_BYTES = _CHUNK_BYTES = 1 << 16
_HEADER_BYTES = 1 << 12
_MAX_LINE_BYTES = 1 << 26
"""A row of a million metrics is shorter."""
_FILE = re.compile(r"\d{1,9}\.jsonl")
_MAX_INT = 2**63
ROW_FIELDS = frozenset(["step", "epoch", "time", "nonfinite", "session", "start_step"])
"""The keys of a row, or of a session's header, that are the format's own: no metric has such a name."""
PERF = "perf/"
"""The prefix of times and memory (see `roost.package.results.time_breakdown`). They are not metrics:
comparisons of runs, curves and lists of newest values leave them out."""
STATS = "stats/"
"""The prefix of the norms of gradients, weights and updates. There may be hundreds, so curves and lists of
all values leave them out; otherwise they are ordinary values, with the same bits after a resume."""


def decode_row(line: bytes) -> Row:
    """Returns a row, or a session's header (it has a ``start_step``), with non-finite values as floats again;
    empty if the line is neither. The only decoder of the format: all readers call it."""
    try:
        body = _decode(line)
        for name, text in body.get("nonfinite", {}).items():
            body[name] = float(text)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    step = body.get("start_step", body.get("step"))
    return body if type(step) is int and abs(step) < _MAX_INT else {}


def metrics(row: Row) -> dict[str, float]:
    """Returns the metrics of a row; values that are not numbers are left out."""
    return {name: value for name, value in row.items() if is_metric(name) and _is_number(value)}


def values(row: Row) -> dict[str, float]:
    """Returns all numbers of a row, including `PERF` and `STATS`."""
    return {name: value for name, value in row.items() if name not in ROW_FIELDS and _is_number(value)}


def is_metric(name: str) -> bool:
    """Whether a key of a row is the name of a metric."""
    return name not in ROW_FIELDS and not name.startswith((PERF, STATS))


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _MAX_INT)


def _discard_after(rows: list[Row], step: int) -> None:
    """Removes the rows after ``step``."""
    del rows[bisect_right(rows, step, key=_step) :]


def read_tail(path: Path) -> list[Row]:
    """Returns the last valid rows of a records file, the oldest first, by one read of its end, whatever its
    length; empty if there is no file."""
    try:
        fd = safe_read.open_fd(path)
    except OSError:
        return []
    try:
        start = max(0, os.fstat(fd).st_size - _TAIL_BYTES)
        data = os.pread(fd, _TAIL_BYTES, start)
    finally:
        os.close(fd)
    rows: list[Row] = []
    for row in map(decode_row, data.split(b"\n")[1 if start else 0 :]):
        if "start_step" in row:
            _discard_after(rows, row["start_step"])
        elif row:
            rows.append(row)
    return rows


class SessionFollower:
    """Reads a records file while it grows, each byte once.

    Args:
        path: ``records/<n>.jsonl``; it need not exist yet.
        tail_bytes: Of a longer file, only so much of its end is read; None: all of it.
    """

    def __init__(self, path: Path, *, tail_bytes: int | None = None) -> None:
        self._path = path
        self._offset = 0
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._tail_bytes = tail_bytes

    def new_rows(self) -> list[Row]:
        """Returns the rows that were completed since the last call, the oldest first. A row with a
        ``start_step`` and no values marks that the session began at, or went back to, that step."""
        try:
            if self._path.stat().st_size == self._offset:  # a fraction of the cost of opening it
                return []
            fd = safe_read.open_fd(self._path)
        except OSError:
            return []
        found: list[Row] = []
        try:
            self._skip_beginning(fd)
            while piece := os.pread(fd, _CHUNK_BYTES, self._offset):
                self._offset += len(piece)
                *lines, rest = piece.split(b"\n")
                if lines:
                    lines[0] = b"".join([*self._rest, lines[0]])
                    found += filter(None, map(decode_row, lines))
                    self._rest, self._rest_bytes = [], 0
                self._rest_bytes += len(rest)
                # A line that no session writes is read and not kept; NUL makes what is kept of it no JSON.
                self._rest = [*self._rest, rest] if self._rest_bytes <= _MAX_LINE_BYTES else [b"\0"]
        finally:
            os.close(fd)
        return found

    def _skip_beginning(self, fd: int) -> None:
        if self._tail_bytes is not None:
            self._offset = max(0, os.fstat(fd).st_size - self._tail_bytes)
            if self._offset:
                self._rest = [b"\0"]  # with NUL before it, the rest of the first line is no JSON
            self._tail_bytes = None


def _read_bytes(path: Path) -> bytes:
    try:
        return bytes(safe_read.read(path, max_bytes=MAX_BYTES))
    except OSError:
        return b""  # a FIFO, a folder, …: not a file of roost


def _step(row: Row) -> int:
    step: int = row["step"]
    return step


def _start_step(header: Row) -> int:
    step: int = header["start_step"]
    return step


def _read_session(path: Path) -> tuple[Row, list[Row], int]:
    header: Row = {}
    rows: list[Row] = []
    torn, before = 0, b""
    for line in filter(None, _read_bytes(path).split(b"\n")):
        # If only the line's end did not fit on a full disk, the row was written a second time.
        if line == before:
            continue
        before, body = line, decode_row(line)
        if "start_step" in body:
            _discard_after(rows, body["start_step"])
            # A session may go back to before its start, if the checkpoint that it began from is damaged by
            # then.
            header = min(header or body, body, key=_start_step)
        elif body:
            rows.append(body)
        else:
            torn += 1
    return header, rows, torn


def encode_records(rows: Iterable[Row], *, session: int) -> bytes:
    """Returns the bytes of a records file with these rows; a fork keeps the rows of its parent so."""
    header = {"session": session, "start_step": 0, "time": round(time.time(), 3)}
    return b"".join(_encode(one) + b"\n" for one in (header, *rows))


def fold(folder: Path, *, until: float = math.inf) -> Columns:
    """Reads all sessions of a ``records`` folder into one history without duplicates.

    A row of an earlier session is hidden if a later session continued from before it. Session 0 contains what
    a fork inherited.

    Args:
        folder: The folder ``records`` of a package.
        until: The last session that is read.
    """
    columns = Columns()
    if not folder.is_dir():
        return columns
    paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal() and int(path.stem) <= until]
    for path in sorted(paths, key=lambda path: int(path.stem)):
        header, rows, torn = _read_session(path)
        columns.torn += torn
        if not header:
            continue
        start = _start_step(header)
        _discard_after(columns.rows, start)
        columns.starts.append((int(path.stem), start))
        columns.rows.extend(rows)
    if len(columns.starts) > 1:
        columns.rows = _without_duplicates(columns.rows)
    for row in columns.rows:
        for name, value in values(row).items():
            add_value(columns.group_of(name), name, row["step"], value)
    return columns


def first_start(folder: Path) -> int:
    """Returns the step at which the oldest records of a ``records`` folder begin, by one small read; 0 if
    there are none. Above 0 the rows before are missing, unless another program recorded none."""
    try:
        numbers = [int(name[:-6]) for name in os.listdir(folder) if _FILE.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return 0
    return start_step(folder / f"{min(numbers, default=0)}.jsonl") or 0


def start_step(path: Path) -> int | None:
    """Returns the step at which a records file begins, by one small read; None if there is no file, or it
    has no header."""
    found = _first_header(path).get("start_step")
    return None if found is None else int(found)


def last_step(folder: Path) -> int:
    """Returns the step of the newest row of a ``records`` folder; 0 without a row."""
    rows = fold(folder).rows
    return _step(rows[-1]) if rows else 0


def data_order(folder: Path) -> str | None:
    """Returns the digest of the order of the training samples, from the newest session of a ``records``
    folder that began at step 0; None if it is not known."""
    try:
        numbers = [int(name[:-6]) for name in os.listdir(folder) if _FILE.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return None
    for number in sorted(numbers, reverse=True):
        header = _first_header(folder / f"{number}.jsonl")
        if header.get("start_step") == 0:
            found = header.get("data_order")
            return found if isinstance(found, str) else None
    return None


def _first_header(path: Path) -> Row:
    """Returns the first line of a records file, if it is a session header; else an empty row."""
    try:
        fd = safe_read.open_fd(path)
    except OSError:
        return {}
    try:
        row = decode_row(os.pread(fd, _HEADER_BYTES, 0).partition(b"\n")[0])
    finally:
        os.close(fd)
    return row if "start_step" in row else {}


def visible_rows(rows: Iterable[Row]) -> list[Row]:
    """Returns the valid ones of the rows of all sessions, given in the order of writing and with headers."""
    found: list[Row] = []
    for row in rows:
        if "start_step" in row:
            _discard_after(found, row["start_step"])
        else:
            found.append(row)
    return _without_duplicates(found)


def _without_duplicates(rows: list[Row]) -> list[Row]:
    """Of rows with the same step and names, keeps the last: a test that was recorded just before a kill is
    repeated by the next session, at the same step."""
    return list({(row["step"], *sorted(filter(is_metric, row))): row for row in rows}.values())


def add_value(series: dict[str, tuple[list[int], list[float]]], name: str, step: int, value: float) -> None:
    """Adds a value to its series, replacing an earlier one of the same step."""
    steps, values = series.setdefault(name, ([], []))
    if steps and steps[-1] == step:
        values[-1] = value  # for example a test that was repeated after a kill
    else:
        steps.append(step)
        values.append(value)
