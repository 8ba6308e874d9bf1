"""Lines of a records file as columns of numbers: a million of them in half a second.

Lines that look alike are decoded together; where one of a piece is of another kind (the header of a session,
a line that is torn, a value that is no number), the lines of that piece are read one by one, as
`roost.package.records` reads them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from roost.package import records
from roost.package.records import Row

NumberArray = np.ndarray[Any, Any]
MetricSet = tuple[str, ...]
"""The metrics of a row, sorted."""
_NON_METRIC_KEYS = ("step", "epoch", "time", "nonfinite")
_MAX_NAMES = 1000
_SAMPLE_BYTES = 1 << 12
"""So much of what is read first is read line by line: it tells what the others look like."""
_INTEGER_LIMIT = 2.0**63
_step = attrgetter("step")


class Column(NamedTuple):
    """The values of one name."""

    rows: NumberArray | None
    """The rows that have one; None: all."""
    values: NumberArray


class RowBlock:
    """Some rows, one after the other.

    Args:
        steps: Of each row.
        shapes: Those that occur.
        shape: Of each row, the number of its shape; None: the first, of all.
        names: What is recorded, and the first row that has it.
        column: Gives the values of one of the names.
    """

    def __init__(
        self, steps: NumberArray, shapes: Sequence[MetricSet], shape: NumberArray | None,
        names: dict[str, int], column: Callable[[str], Column],
    ) -> None:  # fmt: skip
        self.steps, self.shapes, self.shape = steps, shapes, shape
        self.names, self.column = names, column
        self.kept = len(steps)
        """So many rows still count, from the first on."""

    def go_back(self, step: int) -> None:
        """What was recorded after a step counts no more."""
        self.kept = int(np.searchsorted(self.steps[: self.kept], step, side="right"))


class LineDecoder:
    """Reads the lines of one session.

    Args:
        before: The last line that was read earlier, if any.
    """

    def __init__(self, before: bytes = b"") -> None:
        self.before = before
        self.torn = 0
        self._names: dict[str, None] = {}
        self._fields: dict[str, str] = {}
        self._decode: Callable[[bytes], list[Any]] | None = None

    def parts(self, data: bytes) -> Iterator[RowBlock | int]:
        """The rows of some whole lines; and the steps at which the session began, or to which it went
        back."""
        if self._decode is None and (end := data.find(b"\n", _SAMPLE_BYTES) + 1):
            yield from self._one_by_one(data[:end])
            data = data[end:]
        rows = self._alike(data) if self._decode is not None else None
        if rows is not None and (part := self._columns(rows)) is not None:
            self.before = data[data.rfind(b"\n", 0, len(data) - 1) + 1 :].rstrip(b"\n")
            yield part
        else:
            yield from self._one_by_one(data)

    def _alike(self, data: bytes) -> list[Any] | None:
        """All lines decoded, or None where they are not alike."""
        assert self._decode is not None
        try:
            rows = self._decode(data)
        except (msgspec.MsgspecError, ValueError):
            return None
        if not rows or data.startswith(self.before + b"\n"):
            return None
        if b"nonfinite" not in data and b"\\" not in data:  # nor written with an escape
            return rows
        try:
            return rows if all(map(self._filled, rows)) else None
        except (ValueError, TypeError):
            return None

    def _filled(self, row: Any) -> bool:
        """Puts values that are not finite where they belong; False if one belongs nowhere.

        Raises:
            ValueError: A text is no number.
        """
        if row.nonfinite is not UNSET:
            for name, text in row.nonfinite.items():
                field = self._fields.get(name)
                if field is None or getattr(row, field) is UNSET:
                    return False
                setattr(row, field, float(text))
        return True

    def _columns(self, rows: list[Any]) -> RowBlock | None:
        try:
            steps = np.frombuffer(array("q", list(map(_step, rows))), np.int64)
        except OverflowError:
            return None
        if (steps[1:] <= steps[:-1]).any() or steps[0] == np.iinfo(np.int64).min:
            return None  # a line may have been written twice; or its step is none
        columns: dict[str, Column] = {}
        absent = {}
        for number, name in enumerate(self._names):
            found = list(map(attrgetter(f"_{number}"), rows))
            try:
                column = Column(None, np.frombuffer(array("d", found)))
            except TypeError:  # some have none
                there = [at for at, value in enumerate(found) if type(value) is float]
                column = Column(np.array(there, np.int64), np.array([found[at] for at in there], np.float64))
                if records.is_metric(name):
                    absent[name] = np.fromiter((value is UNSET for value in found), bool, len(rows))
            large = column.values[np.abs(column.values) >= _INTEGER_LIMIT]
            if not np.isinf(large).all():
                return None  # too large for an integer; whether it was one is forgotten here
            columns[name] = column
        shapes, shape = self._shapes(absent, len(rows))
        firsts = {name: _first_row(one) for name, one in columns.items() if len(one.values)}
        return RowBlock(steps, shapes, shape, firsts, columns.__getitem__)

    def _shapes(
        self, absent: dict[str, NumberArray], count: int
    ) -> tuple[list[MetricSet], NumberArray | None]:
        """As of a `RowBlock`, by the metrics that some rows lack, and where."""
        metrics = sorted(filter(records.is_metric, self._names))
        if not absent:
            return [tuple(metrics)], None
        packed = np.packbits(np.stack(list(absent.values()), axis=1), axis=1)
        kinds = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, of_row = np.unique(kinds, return_index=True, return_inverse=True)
        shapes = [
            tuple(name for name in metrics if name not in absent or not absent[name][row])
            for row in first.tolist()
        ]
        return shapes, of_row.reshape(count).astype(np.int64) if len(shapes) > 1 else None

    def _one_by_one(self, data: bytes) -> Iterator[RowBlock | int]:
        rows: list[Row] = []
        for line in filter(None, data.split(b"\n")):
            if line == self.before:
                continue
            self.before, row = line, records.decode_row(line)
            if "start_step" in row:
                if rows:
                    yield block_from_rows(rows)
                rows = []
                yield int(row["start_step"])
            elif row:
                rows.append(row)
            else:
                self.torn += 1
        if rows:
            self._learn(rows)
            yield block_from_rows(rows)

    def _learn(self, rows: Sequence[Row]) -> None:
        """What lines look like from now on."""
        names = {name: None for row in rows for name in row if name not in _NON_METRIC_KEYS}
        if names.keys() <= self._names.keys() and self._decode is not None:
            return
        self._names |= names
        if len(self._names) > _MAX_NAMES:
            self._decode = None
            return
        optional = float | None | msgspec.UnsetType
        fields: list[Any] = [("step", int), ("epoch", Any, None), ("time", Any, None)]
        fields += [("nonfinite", dict[str, str] | msgspec.UnsetType, UNSET)]
        fields += [(f"_{number}", optional, UNSET) for number in range(len(self._names))]
        rename = {f"_{number}": name for number, name in enumerate(self._names)}
        kind = msgspec.defstruct("Line", fields, rename=rename, forbid_unknown_fields=True, gc=False)
        self._fields = {name: field for field, name in rename.items()}
        self._decode = msgspec.json.Decoder(kind).decode_lines


def _first_row(column: Column) -> int:
    return 0 if column.rows is None else int(column.rows[0])


def block_from_rows(rows: Sequence[Row]) -> RowBlock:
    """Rows as `records.decode_row` gives them."""
    steps = np.array([row["step"] for row in rows], np.int64)
    numbers: dict[MetricSet, int] = {}
    shape = np.array(
        [numbers.setdefault(tuple(sorted(filter(records.is_metric, row))), len(numbers)) for row in rows],
        np.int64,
    )
    found: dict[str, tuple[list[int], list[float]]] = {}
    for at, row in enumerate(rows):
        for name, value in records.values(row).items():
            places, values = found.setdefault(name, ([], []))
            places.append(at)
            values.append(float(value))
    columns = {
        name: Column(None if len(places) == len(rows) else np.array(places, np.int64), np.array(values))
        for name, (places, values) in found.items()
    }
    firsts = {name: _first_row(one) for name, one in columns.items()}
    return RowBlock(steps, list(numbers), shape if len(numbers) > 1 else None, firsts, columns.__getitem__)


def join_blocks(parts: Iterable[RowBlock]) -> RowBlock:
    """One part of what counts of several."""
    parts = [part for part in parts if part.kept]
    if not parts:
        return RowBlock(np.zeros(0, np.int64), [()], None, {}, dict[str, Column]().__getitem__)
    steps = np.concatenate([part.steps[: part.kept] for part in parts])
    numbers: dict[MetricSet, int] = {}
    shape = np.concatenate([_metric_set_numbers(part, numbers) for part in parts])
    names = dict.fromkeys(name for part in parts for name in part.names if part.names[name] < part.kept)
    columns = {name: join_column(parts, name) for name in names}
    firsts = {name: _first_row(one) for name, one in columns.items()}
    return RowBlock(steps, list(numbers), shape if len(numbers) > 1 else None, firsts, columns.__getitem__)


def _metric_set_numbers(part: RowBlock, numbers: dict[MetricSet, int]) -> NumberArray:
    own = np.array([numbers.setdefault(shape, len(numbers)) for shape in part.shapes], np.int64)
    return own[part.shape[: part.kept]] if part.shape is not None else np.full(part.kept, own[0])


def join_column(parts: Sequence[RowBlock], name: str) -> Column:
    """What counts of one name in several parts; rows are counted through all of them."""
    rows, values, count, is_dense = [], [], 0, True
    for part in parts:
        if part.names.get(name, part.kept) < part.kept:
            column = part.column(name)
            most = part.kept if column.rows is None else int(np.searchsorted(column.rows, part.kept))
            own = np.arange(most) if column.rows is None else column.rows[:most]
            is_dense = is_dense and column.rows is None
            rows.append(own + count)
            values.append(column.values[:most])
        else:
            is_dense = is_dense and not part.kept
        count += part.kept
    if not values:
        return Column(np.zeros(0, np.int64), np.zeros(0))
    return Column(None if is_dense else np.concatenate(rows), np.concatenate(values))


def metric_set_numbers(parts: Sequence[RowBlock]) -> NumberArray:
    """Of each row that counts in several parts, the number of its shape: the same for the same metrics."""
    numbers: dict[MetricSet, int] = {}
    return (
        np.concatenate([_metric_set_numbers(part, numbers) for part in parts])
        if parts
        else np.zeros(0, np.int64)
    )


def repeated_steps(steps: NumberArray) -> list[tuple[int, int]]:
    """Where rows of the same step stand, one after the other: from, to."""
    found: list[tuple[int, int]] = []
    for at in np.flatnonzero(steps[1:] == steps[:-1]).tolist():
        if found and found[-1][1] == at + 1:
            found[-1] = (found[-1][0], at + 2)
        else:
            found.append((at, at + 2))
    return found
