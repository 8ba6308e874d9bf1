"""The history of a run as columns of numbers, kept in the cache, so that no line of a records file is read
twice.

The history equals that of `roost.package.records.fold`. The cache has one file per session with its effective
rows, one column per name, so that a curve reads two columns. The file names its records file and the last
byte read: of a records file that has grown, only the new end is read. If one was replaced or is damaged, its
cache file is rebuilt.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from roost.base import durable, safe_read
from roost.operations.cache_folder import cache_folder, write_cache_file
from roost.operations.curves.record_columns import (
    ROW_NUMBERS,
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

_FORMAT = 2
_READ_BYTES = 1 << 20
_REWRITE_BYTES = 1 << 20
"""The columns are written again only if more than this, and a sixteenth of the records file, is new."""
_REWRITE_SHARE = 16
_TAIL_BYTES = 128
_MAX_HEADER_BYTES = 1 << 28


class _ArrayPosition(NamedTuple):
    """The position of an array of 8-byte numbers in the file."""

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
    """Bytes of the records file that the cache covers."""
    last: bytes
    """The last of these bytes: they differ if the file was overwritten."""
    last_line: bytes
    start: int | None
    torn: int
    metric_sets: list[MetricSet]
    steps: _ArrayPosition
    set_numbers: _ArrayPosition | None
    columns: dict[str, _ColumnHeader]


Series = tuple[NumberArray, NumberArray]
"""The steps, ascending, and the values of one name."""


class DamagedCache(Exception):
    """A cache file does not match its checksum; `read_series` rebuilds it."""


@dataclass
class SessionRecords:
    """The records of one session."""

    number: int
    blocks: list[RowBlock] = field(default_factory=list)
    start: int | None = None
    """The first step from which it began or continued; None before its first header."""
    torn: int = 0
    read: int = 0
    """Bytes read, up to the end of a line."""

    def add_lines(self, decoder: LineDecoder, data: bytes) -> None:
        """Adds complete lines."""
        for one in decoder.decode(data):
            if isinstance(one, RowBlock):
                self.blocks.append(one)
                continue
            for block in self.blocks:
                block.discard_after(one)
            self.start = one if self.start is None else min(self.start, one)


class History:
    """The effective rows of all sessions of a run.

    Args:
        folder: The ``records`` folder of a package; it need not exist.
        row_numbers: Whether the series of `ROW_NUMBERS` are read too. A cache without them is rebuilt once.
    """

    def __init__(self, folder: Path, *, row_numbers: bool = False) -> None:
        self.blocks: list[RowBlock] = []
        self.cursor = "0:0"
        """The position after the last row, for `roost.serve.routes.run_records`."""
        self.starts: list[tuple[int, int]] = []
        """For each session its number and the step from which it continued."""
        self.torn = 0
        """Lines that could not be read."""
        for session in _read_sessions(folder, row_numbers):
            self.cursor = f"{session.number}:{session.read}"
            self.torn += session.torn
            if session.start is None:
                continue
            for block in self.blocks:
                block.discard_after(session.start)
            self.blocks += session.blocks
            self.starts.append((session.number, session.start))
        self.blocks = [block for block in self.blocks if block.num_effective]
        kept = [block.steps[: block.num_effective] for block in self.blocks]
        self._steps: NumberArray = np.concatenate(kept) if kept else np.zeros(0, np.int64)
        self._repeated = repeated_steps(self._steps)
        self._moved = self._move_repeated_rows() if len(self.starts) > 1 else {}

    @property
    def names(self) -> list[str]:
        """The names of all recorded values."""
        found = (
            name
            for block in self.blocks
            for name, first in block.first_rows.items()
            if first < block.num_effective and name not in ROW_NUMBERS
        )
        return list(dict.fromkeys(found))

    def series(self, name: str) -> Series:
        """Returns the steps, ascending, and the values of one name; or of one of `ROW_NUMBERS`, if they were
        read.

        Raises:
            KeyError: The name is not recorded.
            DamagedCache: A cache file does not match its checksum.
        """
        column = join_column(self.blocks, name)
        if not len(column.values):
            raise KeyError(name)
        if not self._repeated:
            return (self._steps if column.rows is None else self._steps[column.rows]), column.values
        return self._last_of_repeated(column)

    def _last_of_repeated(self, column: Column) -> tuple[NumberArray, NumberArray]:
        """Keeps the last value of each step that several rows share."""
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

    def _move_repeated_rows(self) -> dict[int, int]:
        """Returns new positions of rows that several sessions have recorded: the last of them moves to the
        position of the first, the others are dropped (-1)."""
        moved: dict[int, int] = {}
        set_numbers = metric_set_numbers(self.blocks) if self._repeated else np.zeros(0, np.int64)
        for begin, end in self._repeated:
            by_set: dict[int, list[int]] = {}
            for row in range(begin, end):
                by_set.setdefault(int(set_numbers[row]), []).append(row)
            for rows in by_set.values():
                if len(rows) > 1:
                    moved |= dict.fromkeys(rows, -1) | {rows[-1]: rows[0]}
        return moved


def read_series(
    folder: Path, select: Callable[[Sequence[str]], Iterable[str]]
) -> tuple[History, dict[str, Series]]:
    """Returns the history of a run, and the series of the selected names. A damaged cache is rebuilt.

    Args:
        folder: The ``records`` folder of a package; it need not exist.
        select: Chooses among the recorded names.
    """
    history = History(folder)
    try:
        return history, {name: history.series(name) for name in select(history.names)}
    except DamagedCache:
        remove_cached(folder)
        history = History(folder)
        return history, {name: history.series(name) for name in select(history.names)}


def records_files(folder: Path) -> list[Path]:
    """Returns the records files of all sessions, oldest first."""
    paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()] if folder.is_dir() else []
    return sorted(paths, key=lambda path: int(path.stem))


def remove_cached(folder: Path) -> None:
    """Removes the cache files of a ``records`` folder."""
    for path in records_files(folder):
        durable.discard(_cache_file(path))


def _read_sessions(folder: Path, row_numbers: bool) -> Iterator[SessionRecords]:
    for path in records_files(folder):
        with suppress(OSError):  # a FIFO, a folder, …: not a records file
            yield read_session(path, row_numbers=row_numbers)


def read_session(path: Path, *, row_numbers: bool = False) -> SessionRecords:
    """Reads the records file of one session, as it is now; with `ROW_NUMBERS` if they are asked for.

    Raises:
        OSError: It cannot be read.
    """
    with open(safe_read.open_fd(path), "rb", buffering=0) as file:
        fd = file.fileno()
        session, decoder = _read_cached(path, fd, row_numbers)
        known = session.read
        rest = b""
        while piece := os.pread(fd, _READ_BYTES, session.read + len(rest)):
            whole_lines, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                session.read += len(whole_lines) + 1
                session.add_lines(decoder, whole_lines + b"\n")
        if session.read - known > max(_REWRITE_BYTES, session.read // _REWRITE_SHARE):
            _write_cache(path, fd, session, decoder)
    if rest:
        session.add_lines(decoder, rest)  # perhaps a complete row whose newline is not written yet
    session.torn = decoder.torn
    return session


def _read_cached(path: Path, fd: int, row_numbers: bool) -> tuple[SessionRecords, LineDecoder]:
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
        is_same_file = (header.format, header.path, header.inode) == (_FORMAT, os.fspath(path), found.st_ino)
        if not is_same_file or found.st_size < header.read or last != header.last:
            raise DamagedCache
        has_numbers = not header.columns.keys().isdisjoint(ROW_NUMBERS)
        if row_numbers and header.columns and not has_numbers:
            raise DamagedCache
        block = _read_block(_cache_file(path), header, 16 + length)
    except (OSError, ValueError, DamagedCache):
        return SessionRecords(number), LineDecoder(row_numbers=row_numbers)
    decoder = LineDecoder(header.last_line, row_numbers=has_numbers or row_numbers)
    decoder.torn = header.torn
    return SessionRecords(number, [block], header.start, header.torn, header.read), decoder


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

    set_numbers = array(header.set_numbers, "<i8") if header.set_numbers is not None else None
    firsts = {name: one.first for name, one in header.columns.items()}
    return RowBlock(array(header.steps, "<i8"), header.metric_sets, set_numbers, firsts, column)


def _write_cache(path: Path, fd: int, session: SessionRecords, decoder: LineDecoder) -> None:
    """Writes the columns of a session, and replaces its blocks by one that has all of them."""
    block = join_blocks(session.blocks)
    session.blocks = [block]
    pieces: list[bytes] = []
    offset = 0

    def append(numbers: NumberArray) -> _ArrayPosition:
        nonlocal offset
        pieces.append(numbers.tobytes())
        offset += len(pieces[-1])
        return _ArrayPosition(offset - len(pieces[-1]), len(numbers), zlib.crc32(pieces[-1]))

    steps = append(block.steps)
    set_numbers = append(block.set_numbers) if block.set_numbers is not None else None
    columns = {}
    for name, first in block.first_rows.items():
        rows, values = block.column(name)
        columns[name] = _ColumnHeader(first, append(rows) if rows is not None else None, append(values))
    last = os.pread(fd, min(_TAIL_BYTES, session.read), max(0, session.read - _TAIL_BYTES))
    header = _Header(
        _FORMAT, os.fspath(path), os.fstat(fd).st_ino, session.read, last, decoder.last_line, session.start,
        decoder.torn, list(block.metric_sets), steps, set_numbers, columns,
    )  # fmt: skip
    try:
        data = msgspec.msgpack.encode(header)
    except UnicodeEncodeError:
        return  # a path that cannot be encoded
    head = np.array([len(data), zlib.crc32(data)], "<u8").tobytes()
    write_cache_file(_cache_file(path), b"".join([head, data, *pieces]))


def _cache_file(path: Path) -> Path:
    return cache_folder() / "records" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
