"""Files of an evaluation's rows: Parquet where pyarrow is installed, else JSON lines; one reader for both.

Both keep the types of the columns (`roost.package.results.evaluations.row_columns`): Parquet in the metadata
of its schema, a part of JSON lines in its first line, and the merged JSON lines in columns.json, so that
rows.jsonl has rows and nothing else. In JSON lines a number that is not finite is null and named in
``nonfinite``; for one inside a list or a mapping see `encode_json`.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from roost.base import durable
from roost.base.errors import ConfigError, RoostError
from roost.package.results.evaluations import arrow_buffers
from roost.package.results.evaluations.evaluation_folder import Format
from roost.package.results.evaluations.row_columns import (
    ID,
    NONFINITE,
    ColumnType,
    RowColumn,
    decode_json,
    encode_json,
    ordered_names,
)

TYPES_FILE = "columns.json"
_METADATA = b"roost"
_LINES_PER_CHUNK = 16_384
_LINES_PER_WRITE = 4096
_REPEATING = ("int", "text", "json")
"""Kinds with often few different values, of which Parquet stores a dictionary. Of ids, floats and arrays it
would be larger than the values, and takes five times as long."""
_UNREADABLE = "remove the file if its disk is sound: its batches are evaluated again"


class PartMeta(NamedTuple):
    """The content of a file of rows beside its rows."""

    types: dict[str, ColumnType]
    batches: Sequence[int] = ()
    """The numbers of the batches of a part; they are whole in it."""
    batch_values: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    """By batch: values that are of the batch as a whole."""

    def encode(self) -> bytes:
        """Returns the content as one line of JSON."""
        return msgspec.json.encode(
            {
                "columns": {name: self.types[name].to_json() for name in ordered_names(self.types)},
                "batches": self.batches,
                "batch_values": {str(batch): values for batch, values in self.batch_values.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> PartMeta:
        """Returns the content that `encode` has written. Raises ValueError, KeyError or TypeError."""
        found = msgspec.json.decode(data)
        return cls(
            {name: ColumnType.from_json(one) for name, one in found["columns"].items()},
            [int(batch) for batch in found["batches"]],
            {int(batch): values for batch, values in found["batch_values"].items()},
        )


def installed_format() -> Format:
    """Returns the format in which this machine writes the rows of a new cell."""
    return "parquet" if importlib.util.find_spec("pyarrow") is not None else "jsonl"


def require(format_: Format, where: Path) -> None:
    """Checks that this machine reads and writes a format.

    Raises:
        ConfigError: It is Parquet, and pyarrow is not installed.
    """
    if format_ == "parquet" and installed_format() != "parquet":
        raise ConfigError(
            "the rows of this evaluation are Parquet files, and pyarrow is not installed here",
            where=where,
            fix="pip install 'roost[eval]'",
        )


def write(
    path: Path, meta: PartMeta, chunks: Iterable[Mapping[str, RowColumn]], *, has_header: bool = True
) -> None:
    """Writes a file of rows durably and atomically. Its suffix says its format.

    Args:
        path: The file; one of this name is replaced.
        meta: The types of all columns; those of a part have its batches, too.
        chunks: The rows, each chunk with all columns in these types.
        has_header: Whether JSON lines begin with ``meta``.

    Raises:
        OSError: The file could not be written; there is no new one.
    """
    staging = durable.staging_name(path)
    with durable.NewFile(staging) as file:
        if path.suffix == ".parquet":
            _write_parquet(file, meta, chunks)
        else:
            if has_header:
                file.write(meta.encode() + b"\n")
            for chunk in chunks:
                for lines in _encoded_lines(chunk):
                    file.write(lines)
    try:
        durable.rename(staging, path)
    except BaseException:
        durable.discard(staging)
        raise


class RowFile:
    """A file of rows that can be read.

    Args:
        path: The file.
        has_header: Whether JSON lines begin with the content of `PartMeta`; else columns.json beside them has
            it.

    Raises:
        ConfigError: It is Parquet, and pyarrow is not installed.
        RoostError: The file cannot be read.
    """

    def __init__(self, path: Path, *, has_header: bool = True) -> None:
        self.path, self._has_header = path, has_header
        require("parquet" if self._is_parquet else "jsonl", path)
        try:
            self.meta = self._read_meta()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix == ".parquet"

    def _unreadable(self, error: Exception) -> RoostError:
        return RoostError(f"these rows cannot be read: {error}", where=self.path, fix=_UNREADABLE)

    def _read_meta(self) -> PartMeta:
        if self._is_parquet:
            import pyarrow.parquet as pq

            return PartMeta.decode(pq.read_schema(self.path).metadata[_METADATA])
        if not self._has_header:
            return PartMeta.decode((self.path.parent / TYPES_FILE).read_bytes())
        with self.path.open("rb") as file:
            return PartMeta.decode(file.readline())

    def chunks(self, names: Sequence[str] | None = None) -> Iterator[dict[str, RowColumn]]:
        """Yields the rows in pieces of bounded size.

        Args:
            names: The columns; None: all. Of a name that the file lacks there is no column.

        Raises:
            RoostError: The file cannot be read.
        """
        types = {name: one for name, one in self.meta.types.items() if names is None or name in names}
        try:
            yield from (self._parquet_chunks(types) if self._is_parquet else self._line_chunks(types))
        except (OSError, ValueError, KeyError) as error:
            raise self._unreadable(error) from error

    def _parquet_chunks(self, types: Mapping[str, ColumnType]) -> Iterator[dict[str, RowColumn]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                found = file.read_row_group(group, columns=list(types), use_threads=False)
                yield {
                    name: arrow_buffers.from_arrow(found.column(name), type_) for name, type_ in types.items()
                }

    def _line_chunks(self, types: Mapping[str, ColumnType]) -> Iterator[dict[str, RowColumn]]:
        with self.path.open("rb") as file:
            if self._has_header:
                file.readline()
            while lines := list(itertools.islice(file, _LINES_PER_CHUNK)):
                rows = _objects(map(decode_json, lines))
                yield {name: _from_lines(rows, name, type_) for name, type_ in types.items()}

    def rows_at(self, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Returns single rows by their positions in the file.

        Raises:
            RoostError: The file cannot be read.
        """
        wanted, found = np.unique(np.asarray(positions, np.int64)), {}
        try:
            some = self._parquet_rows(wanted) if self._is_parquet else self._lines_at(set(wanted.tolist()))
            for places, columns in some:
                listed = {name: column.items() for name, column in columns.items()}
                for at, position in enumerate(places):
                    found[position] = {name: items[at] for name, items in listed.items()}
        except (OSError, ValueError, KeyError) as error:
            raise self._unreadable(error) from error
        return found

    def _parquet_rows(self, wanted: np.ndarray[Any, Any]) -> Iterator[tuple[list[int], dict[str, RowColumn]]]:
        """Yields the rows of each row group that has some of them."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                inside = wanted[(wanted >= first) & (wanted < first + count)]
                if len(inside):
                    table = file.read_row_group(group, use_threads=False)
                    table = table.take(arrow_buffers.integers(inside - first))
                    types = self.meta.types.items()
                    columns = {
                        name: arrow_buffers.from_arrow(table.column(name), type_) for name, type_ in types
                    }
                    yield inside.tolist(), columns
                first += count

    def _lines_at(self, wanted: set[int]) -> Iterator[tuple[list[int], dict[str, RowColumn]]]:
        with self.path.open("rb") as file:
            if self._has_header:
                file.readline()
            lines = {place: line for place, line in enumerate(file) if place in wanted}
        rows = _objects(map(decode_json, lines.values()))
        yield list(lines), {name: _from_lines(rows, name, type_) for name, type_ in self.meta.types.items()}


# ---- JSON lines -----------------------------------------------------------------------------------------


def _encoded_lines(columns: Mapping[str, RowColumn]) -> Iterator[bytes]:
    names = ordered_names(columns)
    nonfinite: dict[int, dict[str, str]] = {}
    listed = []
    for name in names:
        column = columns[name]
        items = column.items()
        if column.kind == "array":
            items = [None if value is None else value.tolist() for value in items]
        elif column.kind == "file":
            items = [None if value is None else {"file": value} for value in items]
        elif column.kind == "float":
            bad = ~np.isfinite(column.values)
            if column.missing is not None:
                bad &= ~column.missing
            for place in np.flatnonzero(bad).tolist():
                nonfinite.setdefault(place, {})[name] = repr(float(column.values[place]))
        listed.append(items)
    lines = []
    for place, values in enumerate(zip(*listed, strict=True)):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if place in nonfinite:
            row = {
                **{name: None if name in nonfinite[place] else row[name] for name in row},
                NONFINITE: nonfinite[place],
            }
        lines.append(encode_json(row))
        if len(lines) == _LINES_PER_WRITE:
            yield b"\n".join(lines) + b"\n"
            lines = []
    if lines:
        yield b"\n".join(lines) + b"\n"


def _objects(rows: Iterable[Any]) -> list[Mapping[str, Any]]:
    found = list(rows)
    if not all(isinstance(row, dict) for row in found):
        raise ValueError("a line is no JSON object")
    return found


def _from_lines(rows: Sequence[Mapping[str, Any]], name: str, type_: ColumnType) -> RowColumn:
    values = [row.get(name) for row in rows]
    missing = np.fromiter((value is None for value in values), bool, len(values))
    if type_.kind in ("text", "json", "empty"):
        return RowColumn(type_, values)
    if type_.kind == "file":
        return RowColumn(type_, [None if value is None else value["file"] for value in values])
    absent = missing if missing.any() else None
    if type_.kind == "array":
        zero = np.zeros(type_.shape, type_.dtype).tolist()
        filled = [zero if value is None else value for value in values]
        return RowColumn(type_, np.array(filled, type_.dtype).reshape(len(values), *type_.shape), absent)
    if type_.kind == "float":
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        if absent is not None:
            for place in np.flatnonzero(absent).tolist():
                if name in (words := rows[place].get(NONFINITE, {})):
                    numbers[place], absent[place] = float(words[name]), False
        return RowColumn(type_, numbers, absent if absent is not None and absent.any() else None)
    dtype = bool if type_.kind == "bool" else np.int64
    return RowColumn(type_, np.array([0 if value is None else value for value in values], dtype), absent)


# ---- Parquet --------------------------------------------------------------------------------------------


class _Sink:
    """A durable file as pyarrow writes into one."""

    closed = False

    def __init__(self, file: durable.NewFile) -> None:
        self._file, self._size = file, 0

    def write(self, data: Any) -> int:
        self._size += self._file.write(memoryview(data))
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The durable file ends with its own block."""


def _write_parquet(file: durable.NewFile, meta: PartMeta, chunks: Iterable[Mapping[str, RowColumn]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ordered_names(meta.types)
    fields = [pa.field(name, arrow_buffers.arrow_type(meta.types[name])) for name in names]
    schema = pa.schema(fields, metadata={_METADATA: meta.encode()})
    repeating = [name for name in names if name != ID and meta.types[name].kind in _REPEATING]
    with pq.ParquetWriter(_Sink(file), schema, use_dictionary=repeating) as writer:
        for chunk in chunks:
            arrays = [arrow_buffers.to_arrow(chunk[name]) for name in names]
            table = pa.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, row_group_size=max(len(table), 1))
