"""The columns of an evaluation's rows: one kind of value each, as NumPy arrays where NumPy has the kind.

========= =============================================== ===========================================
kind      values of `RowColumn`                              in Parquet
========= =============================================== ===========================================
empty     none: every value is missing                    null
bool      NumPy, bool                                     bool
int       NumPy, int64                                    int64
float     NumPy, float64; NaN where a value is missing    double; NaN stays NaN, a missing value is null
text      list of str or None                             string
file      list of paths in the cell's folder, or None     string
array     NumPy, (rows, *shape) of any plain type         list
json      list of plain data                              string, JSON (`encode_json`)
========= =============================================== ===========================================

The kinds form a lattice (`join`), so that a column has the same kind however its rows were divided into
parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from roost.base.errors import ContractError

Kind = Literal["empty", "bool", "int", "float", "text", "file", "array", "json"]
NUMBERS: tuple[Kind, ...] = ("bool", "int", "float")
"""The kinds of numbers: of a column with one of them statistics are computed."""
ID, ERROR, GROUP = "id", "skipped/error", "group/"
"""The names of the columns with the ids, and with the errors of skipped samples; the prefix of groups."""
NONFINITE = "nonfinite"
NO_LABEL = "(none)"
"""The label of a sample that has none in a group."""
MAX_INLINE_NUMBERS = 1024
"""Arrays of more numbers are no values of a row: they belong in files (`roost.evaluation.file_writer`)."""

_INT64 = 2**63
_EXACT_IN_FLOAT = 2**53


def is_unicode(text: str) -> bool:
    """Whether a text has an encoding as UTF-8: a lone surrogate, as of a file name that is none, has not."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ColumnType(NamedTuple):
    """The kind of a column; of an array also the type of its numbers and the shape of one row."""

    kind: Kind
    dtype: str = ""
    shape: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the type as it is stored with rows."""
        made: dict[str, Any] = {"kind": self.kind}
        return {**made, "dtype": self.dtype, "shape": list(self.shape)} if self.kind == "array" else made

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ColumnType:
        """Returns the type that `to_json` has stored."""
        return cls(value["kind"], value.get("dtype", ""), tuple(value.get("shape", ())))


_EMPTY, _JSON = ColumnType("empty"), ColumnType("json")


@dataclass(frozen=True, slots=True)
class RowColumn:
    """The values of one column, see the table of this module."""

    type: ColumnType
    values: Any
    missing: np.ndarray[Any, Any] | None = None
    """Which rows of a NumPy column have no value; None: all have one."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def kind(self) -> Kind:
        """The kind of the values."""
        return self.type.kind

    @property
    def is_number(self) -> bool:
        """Whether statistics of the column exist."""
        return self.kind in NUMBERS

    def take(self, places: np.ndarray[Any, Any]) -> RowColumn:
        """Returns the rows at these places, in their order."""
        if isinstance(self.values, list):
            return RowColumn(self.type, [self.values[place] for place in places.tolist()])
        return RowColumn(
            self.type, self.values[places], None if self.missing is None else self.missing[places]
        )

    def items(self) -> list[Any]:
        """Returns the values as Python objects: None where one is missing, an array for a row of arrays."""
        if isinstance(self.values, list):
            return self.values
        found = list(self.values) if self.kind == "array" else self.values.tolist()
        if self.missing is not None:
            for place in np.flatnonzero(self.missing).tolist():
                found[place] = None
        return found


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, RowColumn]:
    """Converts rows to columns. A name that a row lacks is missing in it."""
    names = {name: None for row in rows for name in row}
    return {name: column_of([row.get(name) for row in rows], name) for name in names}


def column_of(values: Any, name: str = "") -> RowColumn:
    """Converts the values of all rows, an array (rows, ...) or a sequence, to a column of the narrowest kind.

    Raises:
        ContractError: A value is none of those in the table of this module.
    """
    if isinstance(values, np.ndarray) and not values.dtype.hasobject:
        return _of_array(values, name)
    listed = values if isinstance(values, list) else list(values)
    kinds = set(map(type, listed))
    if any(issubclass(kind, np.generic) for kind in kinds):
        listed = [_plain(value) for value in listed]
        kinds = set(map(type, listed))
    missing = type(None) in kinds
    kinds.discard(type(None))
    if kinds == {np.ndarray} and (arrays := _of_equal_arrays(listed, name)) is not None:
        return arrays
    if not kinds:
        return RowColumn(_EMPTY, [None] * len(listed))
    if kinds <= {bool, int, float} and (numbers := _of_numbers(listed, kinds, missing)) is not None:
        return numbers
    if kinds == {str}:
        return RowColumn(ColumnType("text"), listed)
    if kinds == {dict} and all(value is None or _is_file(value) for value in listed):
        return RowColumn(ColumnType("file"), [None if value is None else value["file"] for value in listed])
    return RowColumn(_JSON, [_number_in_json(_jsonable(value, name)) for value in listed])


def _number_in_json(value: Any) -> Any:
    """Returns a number in the one form that it has among values of other kinds, whether its part of the rows
    was a column of bool, int or float; any other value as it is."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_IN_FLOAT:
        return int(value)
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_file(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and isinstance(value.get("file"), str)


def _of_array(values: np.ndarray[Any, Any], name: str) -> RowColumn:
    kind = values.dtype.kind
    if values.ndim > 1 and kind in "biuf":
        shape = values.shape[1:]
        numbers = int(np.prod(shape))
        if numbers > MAX_INLINE_NUMBERS or not numbers:
            raise ContractError(
                f"a row takes arrays of 1 to {MAX_INLINE_NUMBERS:,} numbers, not of {numbers:,}",
                setting=name,
                received=f"{values.dtype} of shape {shape}",
                fix="store it in a file",
            )
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        return RowColumn(ColumnType("array", values.dtype.name, shape), values)
    if kind == "b":
        return RowColumn(ColumnType("bool"), values)
    if kind == "i" or (kind == "u" and (not len(values) or values.max() < _INT64)):
        return RowColumn(ColumnType("int"), values.astype(np.int64))
    if kind == "f":
        return RowColumn(ColumnType("float"), values.astype(np.float64))
    return column_of(values.tolist(), name)


def _of_equal_arrays(values: list[Any], name: str) -> RowColumn | None:
    """Returns arrays of one shape as a column; None for others."""
    present = [value for value in values if value is not None]
    first = present[0]
    if not first.ndim or any(one.shape != first.shape or one.dtype != first.dtype for one in present):
        return None
    zero = np.zeros_like(first)
    column = _of_array(np.stack([zero if value is None else value for value in values]), name)
    absent = np.fromiter((value is None for value in values), bool, len(values))
    return RowColumn(column.type, column.values, absent if absent.any() else None)


def _of_numbers(values: list[Any], kinds: set[type], missing: bool) -> RowColumn | None:
    """Returns numbers as a column; None for integers that do not fit."""
    absent = np.fromiter((value is None for value in values), bool, len(values)) if missing else None
    if float in kinds:
        if int in kinds and any(type(value) is int and abs(value) >= _INT64 for value in values):
            return None
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        return RowColumn(ColumnType("float"), numbers, absent)
    filled = [0 if value is None else value for value in values] if missing else values
    if kinds == {bool}:
        return RowColumn(ColumnType("bool"), np.array(filled, bool), absent)
    try:
        return RowColumn(ColumnType("int"), np.array(filled, np.int64), absent)
    except OverflowError:
        return None


def _jsonable(value: Any, name: str) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    try:
        return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_encode_other)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"a row cannot hold this value: {error}",
            setting=name,
            received=type(value).__name__,
            fix="return numbers, texts, lists and mappings of these, arrays, roost.Media, or paths of files",
        ) from None


def _encode_other(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not plain data")


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
_NONFINITE_WORDS = frozenset(["nan", "inf", "-inf"])


def encode_json(value: Any) -> bytes:
    """Returns plain data as JSON. A number that is not finite, for which JSON has no word, becomes
    ``{"nonfinite": "nan"}``. Half of a surrogate pair, as Python reads names of files that are no UTF-8,
    becomes an escape."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        value = _without_surrogates(value)
        data = _encode(value)
    return _encode(_with_words(value)) if b"null" in data else data  # null is None, too


def decode_json(data: str | bytes) -> Any:
    """Returns what `encode_json` was given. Raises ValueError."""
    value = _decode(data)
    is_named = NONFINITE in data if isinstance(data, str) else NONFINITE.encode() in data
    return _with_numbers(value) if is_named else value


def _with_words(value: Any) -> Any:
    """Returns plain data with a mapping in place of each number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return {NONFINITE: repr(value)}
    if isinstance(value, list):
        return [_with_words(one) for one in value]
    return {name: _with_words(one) for name, one in value.items()} if isinstance(value, dict) else value


def _with_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_numbers(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and isinstance(word := value.get(NONFINITE), str) and word in _NONFINITE_WORDS:
        return float(word)
    return {name: _with_numbers(one) for name, one in value.items()}


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    return (
        {name: _without_surrogates(one) for name, one in value.items()} if isinstance(value, dict) else value
    )


def join(types: Iterable[ColumnType]) -> ColumnType:
    """Returns the narrowest type that holds the values of all these types, whatever their order."""
    made = _EMPTY
    for one in types:
        if made in (one, _EMPTY):
            made = one
        elif one == _EMPTY:
            continue
        elif made.kind in NUMBERS and one.kind in NUMBERS:
            made = ColumnType(max(made.kind, one.kind, key=NUMBERS.index))
        else:
            return _JSON
    return made


def cast(column: RowColumn, to: ColumnType) -> RowColumn:
    """Returns a column as a type that `join` gave for it and others."""
    if column.type == to:
        return column
    if column.kind == "empty":
        return _all_missing(to, len(column))
    if to.kind == "int":
        return RowColumn(to, column.values.astype(np.int64), column.missing)
    if to.kind == "float":
        values = column.values.astype(np.float64)
        if column.missing is not None:
            values[column.missing] = np.nan
        return RowColumn(to, values, column.missing)
    assert to.kind == "json", f"{column.type} does not become {to}"
    found = column.items()
    if column.kind == "file":
        found = [None if value is None else {"file": value} for value in found]
    return RowColumn(
        to,
        [value.tolist() if isinstance(value, np.ndarray) else _number_in_json(value) for value in found],
    )


def _all_missing(type_: ColumnType, count: int) -> RowColumn:
    absent = np.ones(count, bool)
    match type_.kind:
        case "bool":
            return RowColumn(type_, np.zeros(count, bool), absent)
        case "int":
            return RowColumn(type_, np.zeros(count, np.int64), absent)
        case "float":
            return RowColumn(type_, np.full(count, np.nan), absent)
        case "array":
            return RowColumn(type_, np.zeros((count, *type_.shape), type_.dtype), absent)
    return RowColumn(type_, [None] * count)


def concatenate(columns: Sequence[RowColumn]) -> RowColumn:
    """Returns several columns as one."""
    type_ = join(column.type for column in columns)
    same = [cast(column, type_) for column in columns]
    if len(same) == 1:
        return same[0]
    if isinstance(same[0].values, list):
        return RowColumn(type_, [value for column in same for value in column.values])
    missing = None
    if any(column.missing is not None for column in same):
        missing = np.concatenate(
            [np.zeros(len(one), bool) if one.missing is None else one.missing for one in same]
        )
    return RowColumn(type_, np.concatenate([column.values for column in same]), missing)


def ordered_names(names: Iterable[str]) -> list[str]:
    """Returns names of columns in the order of a file: the ids, the others by name, groups, errors."""
    return sorted(names, key=lambda name: (name != ID, name == ERROR, name.startswith(GROUP), name))
