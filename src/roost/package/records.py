"""What a run recorded: one JSON line per row, one file per session, append-only.

A row survives the death of the process as soon as it is written, and a power cut once `sync` was called,
which happens before a checkpoint commits. A session that goes on from step N hides what an earlier one
recorded after N; the files themselves are never rewritten.
"""

from __future__ import annotations

import math
import os
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
"""A line of the file as JSON."""


class RecordsWriter:
    """Appends the rows of one session.

    Args:
        path: ``records/<n>.jsonl``; must not exist.
        session: The session's number.
        start_step: The step this session goes on from.
    """

    def __init__(self, path: Path, *, session: int, start_step: int) -> None:
        self._fd = durable.open_append(path)
        self._unwritten: list[bytes] = []
        self._session = session
        header = {"session": session, "start_step": start_step, "time": round(time.time(), 3)}
        try:
            durable.append(self._fd, _encode(header) + b"\n")
        except OSError:
            os.close(self._fd)
            raise

    def row(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Appends one row; a value that is not finite is written as null and named under ``nonfinite``.

        Raises:
            OSError: The row could not be written (disk full). It is kept and tried again with the next.
        """
        body: dict[str, Any] = {"step": step, "epoch": epoch, "time": round(time.time(), 3), **values}
        nonfinite = {name: repr(value) for name, value in values.items() if not math.isfinite(value)}
        if nonfinite:
            body["nonfinite"] = nonfinite  # msgspec writes NaN and infinity as null
        self._unwritten.append(_encode(body) + b"\n")
        self._flush()

    def go_back(self, step: int) -> None:
        """The session goes on from this earlier step: its rows after it no longer count.

        Raises:
            OSError: It could not be written; it is kept and tried again with the next row.
        """
        header = {"session": self._session, "start_step": step, "time": round(time.time(), 3)}
        self._unwritten.append(_encode(header) + b"\n")
        self._flush()

    def _flush(self) -> None:
        while self._unwritten:
            try:
                durable.append(self._fd, self._unwritten[0])
            except OSError:
                # Half a line may stand there now: what follows begins on a line of its own.
                self._unwritten[0] = b"\n" + self._unwritten[0].lstrip(b"\n")
                raise
            del self._unwritten[0]

    def sync(self) -> None:
        """Makes every row so far survive a power cut.

        Raises:
            OSError: Some could not be written, or not be synced.
        """
        self._flush()
        durable.sync(self._fd)

    def close(self) -> None:
        """Syncs and closes; the writer is of no use afterwards.

        Raises:
            OSError: As `sync`; it is closed all the same.
        """
        try:
            self.sync()
        finally:
            os.close(self._fd)


@dataclass
class Columns:
    """The folded records of a run: per metric, the steps (ascending) and the values at them."""

    series: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    """Every visible row in order, as written (non-finite values as floats)."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """(session, step it went on from)."""
    torn: int = 0
    """Lines that could not be read: at most the last one of a session that was killed while writing."""
    perf: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    """As ``series``, what begins with `PERF`: what the run took, not what it computed."""

    stats: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    """As ``series``, what begins with `STATS`."""

    def of(self, name: str) -> dict[str, tuple[list[int], list[float]]]:
        """The one of the three that a value of that name belongs to."""
        return self.perf if name.startswith(PERF) else self.stats if name.startswith(STATS) else self.series

    def last(self) -> dict[str, float]:
        """The newest value of every metric."""
        return {name: values[-1] for name, (_, values) in self.series.items()}


_MAX_BYTES = 4 << 30
_TAIL_BYTES = _CHUNK_BYTES = 1 << 16
_MAX_INT = 2**63
_NOT_METRICS = frozenset(["step", "epoch", "time", "nonfinite", "session", "start_step"])
PERF = "perf/"
"""So begin the names of times and memory (see `roost.package.results.time_breakdown`). They are no metrics:
who compares
runs, draws curves or looks for the newest values does not meet them."""
STATS = "stats/"
"""So begin the norms of gradients, weights and updates. There may be hundreds, so who draws or lists all
values leaves them out; otherwise they are values like any, the same bits after a resume."""


def decode_row(line: bytes) -> Row:
    """A row, or the header of a session (it has a ``start_step``), with non-finite values as floats again;
    empty when the line is neither. The only reader of the format: all others call it."""
    try:
        body = _decode(line)
        for name, text in body.get("nonfinite", {}).items():
            body[name] = float(text)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    step = body.get("start_step", body.get("step"))
    return body if type(step) is int and abs(step) < _MAX_INT else {}


def metrics(row: Row) -> dict[str, float]:
    """What was measured; a value that is no number is none of it."""
    return {name: value for name, value in row.items() if is_metric(name) and _is_number(value)}


def values(row: Row) -> dict[str, float]:
    """All numbers of a row, those that are no metrics too."""
    return {name: value for name, value in row.items() if name not in _NOT_METRICS and _is_number(value)}


def is_metric(name: str) -> bool:
    """Whether a name of a row is one of what was measured."""
    return name not in _NOT_METRICS and not name.startswith((PERF, STATS))


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _MAX_INT)


def _discard_after(rows: list[Row], step: int) -> None:
    """Takes away what was recorded after ``step``."""
    del rows[bisect_right(rows, step, key=_step) :]


def read_tail(path: Path) -> list[Row]:
    """The last rows of a records file that count, oldest first, from one read whatever its length; empty
    without one."""
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
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_rows(self) -> list[Row]:
        """The rows whose lines were ended since the last call, oldest first; among them one that has a
        ``start_step`` and no values where the session began, or went back to that step."""
        try:
            fd = safe_read.open_fd(self._path)
        except OSError:
            return []
        found: list[Row] = []
        try:
            while piece := os.pread(fd, _CHUNK_BYTES, self._offset):
                self._offset += len(piece)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                found += filter(None, map(decode_row, lines))
        finally:
            os.close(fd)
        return found


def _read_bytes(path: Path) -> bytes:
    try:
        return bytes(safe_read.read(path, max_bytes=_MAX_BYTES))
    except OSError:
        return b""  # a FIFO, a folder, …: somebody's, and no records


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
        # The disk may have been full for the line's end alone; then the row was written a second time.
        if line == before:
            continue
        before, body = line, decode_row(line)
        if "start_step" in body:
            _discard_after(rows, body["start_step"])
            # The checkpoint that the session began from may be damaged by the time it goes back.
            header = min(header or body, body, key=_start_step)
        elif body:
            rows.append(body)
        else:
            torn += 1
    return header, rows, torn


def encode_records(rows: Iterable[Row], *, session: int) -> bytes:
    """A records file of rows that were read: those of a run from which another one goes on."""
    header = {"session": session, "start_step": 0, "time": round(time.time(), 3)}
    return b"".join(_encode(one) + b"\n" for one in (header, *rows))


def fold(folder: Path, *, until: float = math.inf) -> Columns:
    """Reads all sessions of a ``records`` folder into one history without doubles.

    A row of an earlier session is hidden when a later session went on from before it. Session 0 holds what a
    fork took over.

    Args:
        folder: Of a package.
        until: The last session that is looked at.
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
            add_value(columns.of(name), name, row["step"], value)
    return columns


def visible_rows(rows: Iterable[Row]) -> list[Row]:
    """Of rows in the order in which all sessions wrote them, headers among them, those that count."""
    found: list[Row] = []
    for row in rows:
        if "start_step" in row:
            _discard_after(found, row["start_step"])
        else:
            found.append(row)
    return _without_duplicates(found)


def _without_duplicates(rows: list[Row]) -> list[Row]:
    """A test that was recorded just before a kill is done again by the next session, at the same step: of
    rows with one step and the same names the last one counts."""
    return list({(row["step"], *sorted(filter(is_metric, row))): row for row in rows}.values())


def add_value(series: dict[str, tuple[list[int], list[float]]], name: str, step: int, value: float) -> None:
    """Adds a value to its series; what the same step had before counts no more."""
    steps, values = series.setdefault(name, ([], []))
    if steps and steps[-1] == step:
        values[-1] = value  # the same step again, for example a test that was repeated after a kill
    else:
        steps.append(step)
        values.append(value)
