"""What a run recorded, as columns of numbers, kept in the cache: no line of a records file is read twice.

The history is that of `roost.package.records.fold`. The cache has a file for each session: the rows that
count, name by name, so that a curve needs two columns of it. It says which records file it is of and up to
which byte: of one that has grown only the new end is read. One that was replaced, or damaged, is made anew.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from roost.base import durable, safe_read
from roost.operations.cache_folder import cache_folder, write_cache_file
from roost.operations.curves.record_columns import (
    Column,
    LineDecoder,
    MetricSet,
    NumberArray,
    RowBlock,
    join_blocks,
    join_column,
    metric_set_numbers,
    repeated_steps,
)

_FORMAT = 1
_READ_BYTES = 1 << 20
_REWRITE_BYTES = 1 << 20
"""So much of a records file must be new before its columns are written again, and a sixteenth of it."""
_REWRITE_SHARE = 16
_TAIL_BYTES = 128
_MAX_HEADER_BYTES = 1 << 28


class _ArrayPosition(NamedTuple):
    """Where numbers of eight bytes lie in the file."""

    offset: int
    length: int
    crc: int


class _ColumnHeader(NamedTuple):
    first: int
    rows: _ArrayPosition | None
    values: _ArrayPosition


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: int
    path: str
    inode: int
    read: int
    """Bytes of the records file that are in here."""
    last: bytes
    """The last of them: a file that was written over ends otherwise there."""
    before: bytes
    """The last line."""
    start: int | None
    torn: int
    shapes: list[MetricSet]
    steps: _ArrayPosition
    shape: _ArrayPosition | None
    columns: dict[str, _ColumnHeader]


class DamagedCache(Exception):
    """The cache does not hold what it says: `remove_cached` it."""


@dataclass
class SessionRecords:
    """The records of one session."""

    number: int
    parts: list[RowBlock] = field(default_factory=list)
    start: int | None = None
    """The first step that it went on from; None while it has not begun."""
    torn: int = 0
    read: int = 0
    """Bytes, up to the end of a line."""

    def take(self, lines: LineDecoder, data: bytes) -> None:
        """Adds whole lines."""
        for one in lines.parts(data):
            if isinstance(one, RowBlock):
                self.parts.append(one)
                continue
            for part in self.parts:
                part.go_back(one)
            self.start = one if self.start is None else min(self.start, one)


class History:
    """The folded records of a run.

    Args:
        folder: A package's ``records``; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.parts: list[RowBlock] = []
        self.cursor = "0:0"
        """Where what comes later begins, for `roost.serve.routes.run_records`."""
        begun = 0
        for session in _read_sessions(folder):
            self.cursor = f"{session.number}:{session.read}"
            if session.start is None:
                continue
            for part in self.parts:
                part.go_back(session.start)
            self.parts += session.parts
            begun += 1
        self.parts = [part for part in self.parts if part.kept]
        kept = [part.steps[: part.kept] for part in self.parts]
        self._steps: NumberArray = np.concatenate(kept) if kept else np.zeros(0, np.int64)
        self._repeated = repeated_steps(self._steps)
        self._moved = self._without_doubles() if begun > 1 else {}

    @property
    def names(self) -> list[str]:
        """All that is recorded."""
        found = (name for part in self.parts for name, first in part.names.items() if first < part.kept)
        return list(dict.fromkeys(found))

    def series(self, name: str) -> tuple[NumberArray, NumberArray]:
        """The steps, ascending, and the values of one name.

        Raises:
            KeyError: It is not recorded.
            Damaged: The cache does not hold what it says.
        """
        column = join_column(self.parts, name)
        if not len(column.values):
            raise KeyError(name)
        if not self._repeated:
            return (self._steps if column.rows is None else self._steps[column.rows]), column.values
        return self._of_repeated(column)

    def _of_repeated(self, column: Column) -> tuple[NumberArray, NumberArray]:
        """Where rows share a step, the last value counts."""
        rows = np.arange(len(column.values)) if column.rows is None else column.rows
        values = column.values
        if self._moved:
            places = np.array([self._moved.get(row, row) for row in rows.tolist()], np.int64)
            order = np.argsort(places, kind="stable")
            order = order[places[order] >= 0]
            rows, values = rows[order], values[order]
        steps = self._steps[rows]
        is_last = np.append(steps[1:] != steps[:-1], True) if len(steps) else np.zeros(0, bool)
        return steps[is_last], values[is_last]

    def _without_doubles(self) -> dict[int, int]:
        """Where rows stand that another session recorded again: at the place of the first one stands the
        last, the others nowhere (-1)."""
        moved: dict[int, int] = {}
        shapes = metric_set_numbers(self.parts) if self._repeated else np.zeros(0, np.int64)
        for begin, end in self._repeated:
            same: dict[int, list[int]] = {}
            for row in range(begin, end):
                same.setdefault(int(shapes[row]), []).append(row)
            for rows in same.values():
                if len(rows) > 1:
                    moved |= dict.fromkeys(rows, -1) | {rows[-1]: rows[0]}
        return moved


def records_files(folder: Path) -> list[Path]:
    """The records of all sessions, the oldest first."""
    paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()] if folder.is_dir() else []
    return sorted(paths, key=lambda path: int(path.stem))


def remove_cached(folder: Path) -> None:
    """Removes what the cache has of a package's ``records``."""
    for path in records_files(folder):
        durable.discard(_cache_file(path))


def _read_sessions(folder: Path) -> Iterator[SessionRecords]:
    for path in records_files(folder):
        with suppress(OSError):  # a FIFO, a folder, …: somebody's, and no records
            yield read_session(path)


def read_session(path: Path) -> SessionRecords:
    """The records of one session, of its file as it is now.

    Raises:
        OSError: It cannot be read.
    """
    with open(safe_read.open_fd(path), "rb", buffering=0) as file:
        fd = file.fileno()
        session, lines = _read_cached(path, fd)
        known = session.read
        rest = b""
        while piece := os.pread(fd, _READ_BYTES, session.read + len(rest)):
            whole_lines, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                session.read += len(whole_lines) + 1
                session.take(lines, whole_lines + b"\n")
        if session.read - known > max(_REWRITE_BYTES, session.read // _REWRITE_SHARE):
            _write_cache(path, fd, session, lines)
    if rest:
        session.take(lines, rest)  # perhaps a whole row whose end of line is about to come
    return session


def _read_cached(path: Path, fd: int) -> tuple[SessionRecords, LineDecoder]:
    number = int(path.stem)
    try:
        with open(safe_read.open_fd(_cache_file(path)), "rb", buffering=0) as file:
            length, crc = np.frombuffer(file.read(16), "<u8", 2).tolist()
            data = file.read(length) if length < _MAX_HEADER_BYTES else b""
        if zlib.crc32(data) != crc:
            raise DamagedCache
        header = msgspec.msgpack.decode(data, type=_Header)
        found = os.fstat(fd)
        last = os.pread(fd, len(header.last), header.read - len(header.last))
        is_it = (header.format, header.path, header.inode) == (_FORMAT, os.fspath(path), found.st_ino)
        if not is_it or found.st_size < header.read or last != header.last:
            raise DamagedCache
        part = _read_block(_cache_file(path), header, 16 + length)
    except (OSError, ValueError, DamagedCache):
        return SessionRecords(number), LineDecoder()
    lines = LineDecoder(header.before)
    lines.torn = header.torn
    return SessionRecords(number, [part], header.start, header.torn, header.read), lines


def _read_block(path: Path, header: _Header, begin: int) -> RowBlock:
    def array(place: _ArrayPosition, kind: str) -> NumberArray:
        with open(safe_read.open_fd(path), "rb", buffering=0) as file:
            data = os.pread(file.fileno(), place.length * 8, begin + place.offset)
        if zlib.crc32(data) != place.crc:
            raise DamagedCache
        return np.frombuffer(data, kind)

    def column(name: str) -> Column:
        one = header.columns[name]
        return Column(array(one.rows, "<i8") if one.rows is not None else None, array(one.values, "<f8"))

    shape = array(header.shape, "<i8") if header.shape is not None else None
    firsts = {name: one.first for name, one in header.columns.items()}
    return RowBlock(array(header.steps, "<i8"), header.shapes, shape, firsts, column)


def _write_cache(path: Path, fd: int, session: SessionRecords, lines: LineDecoder) -> None:
    """Writes the columns, and takes them for the parts that they are of."""
    part = join_blocks(session.parts)
    session.parts = [part]
    pieces: list[bytes] = []
    offset = 0

    def placed(numbers: NumberArray) -> _ArrayPosition:
        nonlocal offset
        pieces.append(numbers.tobytes())
        offset += len(pieces[-1])
        return _ArrayPosition(offset - len(pieces[-1]), len(numbers), zlib.crc32(pieces[-1]))

    steps = placed(part.steps)
    shape = placed(part.shape) if part.shape is not None else None
    columns = {}
    for name, first in part.names.items():
        rows, values = part.column(name)
        columns[name] = _ColumnHeader(first, placed(rows) if rows is not None else None, placed(values))
    last = os.pread(fd, min(_TAIL_BYTES, session.read), max(0, session.read - _TAIL_BYTES))
    header = _Header(
        _FORMAT, os.fspath(path), os.fstat(fd).st_ino, session.read, last, lines.before, session.start,
        lines.torn, list(part.shapes), steps, shape, columns,
    )  # fmt: skip
    try:
        data = msgspec.msgpack.encode(header)
    except UnicodeEncodeError:
        return  # a path that no text can hold
    head = np.array([len(data), zlib.crc32(data)], "<u8").tobytes()
    write_cache_file(_cache_file(path), b"".join([head, data, *pieces]))


def _cache_file(path: Path) -> Path:
    return cache_folder() / "records" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
