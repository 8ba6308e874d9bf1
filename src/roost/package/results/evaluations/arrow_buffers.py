"""Columns of rows as arrays of Arrow, by their buffers.

pyarrow's own conversions import pandas where it is installed, which costs each evaluation a second of start
and 80 MB. The layout of buffers is that of the Arrow columnar format: a bit for each value that is there,
least significant first; offsets of texts and lists; the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from roost.package.results.evaluations.row_columns import ColumnType, RowColumn, decode_json, encode_json

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]


def arrow_type(type_: ColumnType) -> pa.DataType:
    """Returns the type of a column in Arrow and Parquet."""
    import pyarrow as pa

    plain = {"empty": pa.null(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    if type_.kind == "array":
        # Lists of any length: readers of Parquet do not take fixed ones with missing rows.
        return pa.list_(pa.from_numpy_dtype(np.dtype(type_.dtype)))
    return plain.get(type_.kind, pa.string())


def to_arrow(column: RowColumn) -> pa.Array:
    """Returns a column as an array of Arrow."""
    import pyarrow as pa

    if column.kind == "empty":
        return pa.nulls(len(column))
    if column.kind in ("text", "file"):
        return _texts(column.values)
    if column.kind == "json":
        return _texts([None if value is None else encode_json(value).decode() for value in column.values])
    present = None if column.missing is None else ~column.missing
    if column.kind != "array":
        return _numbers(column.values, present)
    lengths = np.full(len(column), int(np.prod(column.type.shape)))
    kept = column.values
    if present is not None:
        lengths, kept = lengths * present, kept[present]
    return pa.Array.from_buffers(
        arrow_type(column.type),
        len(column),
        [_bits(present), _offsets(lengths)],
        children=[_numbers(kept.reshape(-1), None)],
    )


def _numbers(values: Array, present: Array | None) -> pa.Array:
    import pyarrow as pa

    data = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [_bits(present), data])


def _texts(values: Sequence[str | None]) -> pa.Array:
    import pyarrow as pa

    present = None
    if None in values:
        present = np.fromiter((value is not None for value in values), bool, len(values))
    filled: list[str] = [value or "" for value in values]
    joined = "".join(filled)
    if joined.isascii():
        data, lengths = joined.encode(), np.fromiter(map(len, filled), np.int64, len(filled))
    else:
        # backslashreplace: half of a surrogate pair, as Python reads names of files that are no UTF-8
        encoded = [value.encode(errors="backslashreplace") for value in filled]
        data, lengths = b"".join(encoded), np.fromiter(map(len, encoded), np.int64, len(encoded))
    buffers = [_bits(present), _offsets(lengths), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _offsets(lengths: Array) -> pa.Buffer:
    import pyarrow as pa

    ends = np.cumsum(lengths)
    assert not len(ends) or ends[-1] < 2**31, "more than 2 GiB in one part of a column"
    return pa.py_buffer(np.concatenate([[0], ends]).astype(np.int32))


def _bits(flags: Array | None) -> pa.Buffer | None:
    import pyarrow as pa

    return None if flags is None else pa.py_buffer(np.packbits(flags, bitorder="little"))


def integers(values: Array) -> pa.Array:
    """Returns whole numbers as an array of Arrow."""
    return _numbers(values.astype(np.int64), None)


# ---- reading --------------------------------------------------------------------------------------------


def from_arrow(found: pa.ChunkedArray, type_: ColumnType) -> RowColumn:
    """Returns the column that `to_arrow` has made, in one or several pieces."""
    chunks = found.chunks
    if type_.kind == "empty":
        return RowColumn(type_, [None] * len(found))
    if type_.kind in ("text", "file", "json"):
        values: list[Any] = [value for chunk in chunks for value in _read_texts(chunk)]
        if type_.kind == "json":
            values = [None if value is None else decode_json(value) for value in values]
        return RowColumn(type_, values)
    present = np.concatenate([np.zeros(0, bool), *map(_read_present, chunks)])
    if type_.kind == "array":
        dtype = np.dtype(type_.dtype)
        flat = [_read_numbers(chunk.flatten(), dtype) for chunk in chunks]
        made = np.zeros((len(found), *type_.shape), dtype)
        made[present] = np.concatenate([np.zeros(0, dtype), *flat]).reshape(-1, *type_.shape)
    else:
        dtype = np.dtype({"bool": bool, "int": np.int64, "float": np.float64}[type_.kind])
        made = np.concatenate([np.zeros(0, dtype), *(_read_numbers(chunk, dtype) for chunk in chunks)])
        made[~present] = np.nan if type_.kind == "float" else 0
    return RowColumn(type_, made, None if present.all() else ~present)


def _read_present(chunk: pa.Array) -> Array:
    data = chunk.buffers()[0]
    return np.ones(len(chunk), bool) if data is None or not chunk.null_count else _read_bits(data, chunk)


def _read_bits(data: pa.Buffer, chunk: pa.Array) -> Array:
    end = chunk.offset + len(chunk)
    return np.unpackbits(np.frombuffer(data, np.uint8), count=end, bitorder="little")[chunk.offset :].astype(
        bool
    )


def _read_numbers(chunk: pa.Array, dtype: np.dtype[Any]) -> Array:
    if not len(chunk):
        return np.zeros(0, dtype)
    data = chunk.buffers()[1]
    if dtype.kind == "b":
        return _read_bits(data, chunk)
    return np.frombuffer(data, dtype, len(chunk), chunk.offset * dtype.itemsize)


def _read_texts(chunk: pa.Array) -> list[str | None]:
    if not len(chunk):
        return []
    _, ends, data = chunk.buffers()
    places = np.frombuffer(ends, np.int32, len(chunk) + 1, chunk.offset * 4)
    first = int(places[0])
    raw = b"" if data is None else memoryview(data)[first : int(places[-1])].tobytes()
    cuts = (places - first).tolist()
    text = raw.decode()
    values: list[str | None] = (
        [text[start:end] for start, end in pairwise(cuts)]
        if len(text) == len(raw)
        else [raw[start:end].decode() for start, end in pairwise(cuts)]
    )
    for place in np.flatnonzero(~_read_present(chunk)).tolist():
        values[place] = None
    return values
