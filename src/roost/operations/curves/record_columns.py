"""Decodes lines of a records file to columns of numbers: a million lines in half a second.

Lines with the same keys are decoded together. If a chunk has a line of another kind (a session header, a torn
line, a value that is not a number), its lines are decoded one by one, as `roost.package.records` does.
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
"""The names of the metrics of a row, sorted."""
_NON_METRIC_KEYS = ("step", "epoch", "time", "nonfinite")
ROW_NUMBERS = ("epoch", "time")
"""The numbers of a row that are no recorded values; their columns are beside those of the values."""
_MAX_NAMES = 1000
_SAMPLE_BYTES = 1 << 12
"""The first bytes are decoded line by line, to learn the keys of the lines."""
_INTEGER_LIMIT = 2.0**63
_step = attrgetter("step")


class Column(NamedTuple):
    """The values of one name."""

    rows: NumberArray | None
    """The numbers of the rows that have a value; None: all rows."""
    values: NumberArray


class RowBlock:
    """Consecutive rows.

    Args:
        steps: The step of each row.
        metric_sets: The sets of metrics that occur.
        set_numbers: The number of the metric set of each row; None: the first set, for all rows.
        first_rows: The recorded names, each with the first row that has a value.
        column: Returns the column of a name.
    """

    def __init__(
        self, steps: NumberArray, metric_sets: Sequence[MetricSet], set_numbers: NumberArray | None,
        first_rows: dict[str, int], column: Callable[[str], Column],
    ) -> None:  # fmt: skip
        self.steps, self.metric_sets, self.set_numbers = steps, metric_sets, set_numbers
        self.first_rows, self.column = first_rows, column
        self.num_effective = len(steps)
        """The number of rows that are effective, from the first on."""

    def discard_after(self, step: int) -> None:
        """Makes the rows after a step void."""
        self.num_effective = int(np.searchsorted(self.steps[: self.num_effective], step, side="right"))


class LineDecoder:
    """Decodes the lines of one session.

    Args:
        last_line: The last line that was decoded earlier, if any. A repetition of it is skipped.
        row_numbers: Whether `ROW_NUMBERS` are decoded too, which takes half as long again.
    """

    def __init__(self, last_line: bytes = b"", *, row_numbers: bool = False) -> None:
        self.last_line = last_line
        self.row_numbers = ROW_NUMBERS if row_numbers else ()
        self.torn = 0
        self._names: dict[str, None] = {}
        self._fields: dict[str, str] = {}
        self._decode: Callable[[bytes], list[Any]] | None = None

    def decode(self, data: bytes) -> Iterator[RowBlock | int]:
        """Decodes complete lines. Yields blocks of rows, and the steps at which the session began or to which
        it went back."""
        if self._decode is None and (end := data.find(b"\n", _SAMPLE_BYTES) + 1):
            yield from self._decode_each(data[:end])
            data = data[end:]
        rows = self._decode_together(data) if self._decode is not None else None
        if rows is not None and (block := self._build_block(rows)) is not None:
            self.last_line = data[data.rfind(b"\n", 0, len(data) - 1) + 1 :].rstrip(b"\n")
            yield block
        else:
            yield from self._decode_each(data)

    def _decode_together(self, data: bytes) -> list[Any] | None:
        """Decodes all lines together; returns None if a line is of another kind."""
        assert self._decode is not None
        try:
            rows = self._decode(data)
        except (msgspec.MsgspecError, ValueError):
            return None
        if not rows or data.startswith(self.last_line + b"\n"):
            return None
        if b"nonfinite" not in data and b"\\" not in data:  # a key may be written with escapes
            return rows
        try:
            return rows if all(map(self._fill_nonfinite, rows)) else None
        except (ValueError, TypeError):
            return None

    def _fill_nonfinite(self, row: Any) -> bool:
        """Puts the non-finite values into their fields; returns False if one has no field.

        Raises:
            ValueError: A value is not a number.
        """
        if row.nonfinite is not UNSET:
            for name, text in row.nonfinite.items():
                field = self._fields.get(name)
                if field is None or getattr(row, field) is UNSET:
                    return False
                setattr(row, field, float(text))
        return True

    def _build_block(self, rows: list[Any]) -> RowBlock | None:
        try:
            steps = np.frombuffer(array("q", list(map(_step, rows))), np.int64)
        except OverflowError:
            return None
        if (steps[1:] <= steps[:-1]).any() or steps[0] == np.iinfo(np.int64).min:
            return None  # a line was written twice, or a step is not valid
        columns: dict[str, Column] = {}
        absent = {}
        fields = [(name, name) for name in self.row_numbers]
        fields += [(name, f"_{number}") for number, name in enumerate(self._names)]
        for name, field in fields:
            found = list(map(attrgetter(field), rows))
            try:
                column = Column(None, np.frombuffer(array("d", found)))
            except TypeError:  # some rows have no value
                present = [at for at, value in enumerate(found) if type(value) is float]
                column = Column(
                    np.array(present, np.int64), np.array([found[at] for at in present], np.float64)
                )
                if records.is_metric(name):
                    absent[name] = np.fromiter((value is UNSET for value in found), bool, len(rows))
            large = column.values[np.abs(column.values) >= _INTEGER_LIMIT]
            if not np.isinf(large).all():
                return None  # beyond 64-bit integers, and it is unknown here whether it was one
            columns[name] = column
        metric_sets, set_numbers = self._metric_sets(absent, len(rows))
        firsts = {name: _first_row(one) for name, one in columns.items() if len(one.values)}
        return RowBlock(steps, metric_sets, set_numbers, firsts, columns.__getitem__)

    def _metric_sets(
        self, absent: dict[str, NumberArray], count: int
    ) -> tuple[list[MetricSet], NumberArray | None]:
        """Returns the metric sets, and their number per row, from the masks of rows that lack a metric."""
        metrics = sorted(filter(records.is_metric, self._names))
        if not absent:
            return [tuple(metrics)], None
        packed = np.packbits(np.stack(list(absent.values()), axis=1), axis=1)
        kinds = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, of_row = np.unique(kinds, return_index=True, return_inverse=True)
        metric_sets = [
            tuple(name for name in metrics if name not in absent or not absent[name][row])
            for row in first.tolist()
        ]
        return metric_sets, of_row.reshape(count).astype(np.int64) if len(metric_sets) > 1 else None

    def _decode_each(self, data: bytes) -> Iterator[RowBlock | int]:
        rows: list[Row] = []
        for line in filter(None, data.split(b"\n")):
            if line == self.last_line:
                continue
            self.last_line, row = line, records.decode_row(line)
            if "start_step" in row:
                if rows:
                    yield block_from_rows(rows, self.row_numbers)
                rows = []
                yield int(row["start_step"])
            elif row:
                rows.append(row)
            else:
                self.torn += 1
        if rows:
            self._update_decoder(rows)
            yield block_from_rows(rows, self.row_numbers)

    def _update_decoder(self, rows: Sequence[Row]) -> None:
        """Builds the decoder for lines with the names of these rows, and of all before."""
        names = {name: None for row in rows for name in row if name not in _NON_METRIC_KEYS}
        if names.keys() <= self._names.keys() and self._decode is not None:
            return
        self._names |= names
        if len(self._names) > _MAX_NAMES:
            self._decode = None
            return
        optional = float | None | msgspec.UnsetType
        fields: list[Any] = [("step", int), ("epoch", float | None, None), ("time", float | None, None)]
        fields += [("nonfinite", dict[str, str] | msgspec.UnsetType, UNSET)]
        fields += [(f"_{number}", optional, UNSET) for number in range(len(self._names))]
        rename = {f"_{number}": name for number, name in enumerate(self._names)}
        try:
            kind = msgspec.defstruct("Line", fields, rename=rename, forbid_unknown_fields=True, gc=False)
        except ValueError:  # a name with a quote, a backslash or a control character
            self._decode = None
            return
        self._fields = {name: field for field, name in rename.items()}
        self._decode = msgspec.json.Decoder(kind).decode_lines


def _first_row(column: Column) -> int:
    return 0 if column.rows is None else int(column.rows[0])


def block_from_rows(rows: Sequence[Row], row_numbers: Sequence[str] = ()) -> RowBlock:
    """Builds a block from rows of `records.decode_row`; with some of `ROW_NUMBERS`."""
    steps = np.array([row["step"] for row in rows], np.int64)
    numbers: dict[MetricSet, int] = {}
    set_numbers = np.array(
        [numbers.setdefault(tuple(sorted(filter(records.is_metric, row))), len(numbers)) for row in rows],
        np.int64,
    )
    found: dict[str, tuple[list[int], list[float]]] = {}
    for at, row in enumerate(rows):
        own = {name: row[name] for name in row_numbers if type(row.get(name)) in (int, float)}
        for name, value in (own | records.values(row)).items():
            places, values = found.setdefault(name, ([], []))
            places.append(at)
            values.append(float(value))
    columns = {
        name: Column(None if len(places) == len(rows) else np.array(places, np.int64), np.array(values))
        for name, (places, values) in found.items()
    }
    firsts = {name: _first_row(one) for name, one in columns.items()}
    return RowBlock(
        steps, list(numbers), set_numbers if len(numbers) > 1 else None, firsts, columns.__getitem__
    )


def join_blocks(blocks: Iterable[RowBlock]) -> RowBlock:
    """Joins the effective rows of several blocks to one block."""
    blocks = [block for block in blocks if block.num_effective]
    if not blocks:
        return RowBlock(np.zeros(0, np.int64), [()], None, {}, dict[str, Column]().__getitem__)
    steps = np.concatenate([block.steps[: block.num_effective] for block in blocks])
    numbers: dict[MetricSet, int] = {}
    set_numbers = np.concatenate([_metric_set_numbers(block, numbers) for block in blocks])
    names = dict.fromkeys(
        name for block in blocks for name in block.first_rows if block.first_rows[name] < block.num_effective
    )
    columns = {name: join_column(blocks, name) for name in names}
    firsts = {name: _first_row(one) for name, one in columns.items()}
    return RowBlock(
        steps, list(numbers), set_numbers if len(numbers) > 1 else None, firsts, columns.__getitem__
    )


def _metric_set_numbers(block: RowBlock, numbers: dict[MetricSet, int]) -> NumberArray:
    own = np.array([numbers.setdefault(one, len(numbers)) for one in block.metric_sets], np.int64)
    return (
        own[block.set_numbers[: block.num_effective]]
        if block.set_numbers is not None
        else np.full(block.num_effective, own[0])
    )


def join_column(blocks: Sequence[RowBlock], name: str) -> Column:
    """Joins the effective values of one name in several blocks. Rows are numbered across the blocks."""
    rows, values, count, is_dense = [], [], 0, True
    for block in blocks:
        if block.first_rows.get(name, block.num_effective) < block.num_effective:
            column = block.column(name)
            most = (
                block.num_effective
                if column.rows is None
                else int(np.searchsorted(column.rows, block.num_effective))
            )
            own = np.arange(most) if column.rows is None else column.rows[:most]
            is_dense = is_dense and column.rows is None
            rows.append(own + count)
            values.append(column.values[:most])
        else:
            is_dense = is_dense and not block.num_effective
        count += block.num_effective
    if not values:
        return Column(np.zeros(0, np.int64), np.zeros(0))
    return Column(None if is_dense else np.concatenate(rows), np.concatenate(values))


def metric_set_numbers(blocks: Sequence[RowBlock]) -> NumberArray:
    """Returns the number of the metric set of each effective row in several blocks."""
    numbers: dict[MetricSet, int] = {}
    return (
        np.concatenate([_metric_set_numbers(block, numbers) for block in blocks])
        if blocks
        else np.zeros(0, np.int64)
    )


def repeated_steps(steps: NumberArray) -> list[tuple[int, int]]:
    """Returns the ranges (begin, end) of consecutive rows with the same step."""
    found: list[tuple[int, int]] = []
    for at in np.flatnonzero(steps[1:] == steps[:-1]).tolist():
        if found and found[-1][1] == at + 1:
            found[-1] = (found[-1][0], at + 2)
        else:
            found.append((at, at + 2))
    return found
