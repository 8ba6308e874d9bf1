"""The rows of a cell of an evaluation: a row for each sample of its set.

They are written in parts while the cell runs, each part with whole batches, and merged when all batches are
there (the files are listed in `roost.package.results.evaluations.evaluation_folder`). A row is
``{"id": ..., "<metric>": number, "<output>": value, "group/<name>": label}``. A sample that was skipped has a
row, too: ``{"id": ..., "skipped/error": text}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from roost.base import durable
from roost.base.errors import NotFound, RoostError
from roost.package.results.evaluations import evaluation_folder, row_files
from roost.package.results.evaluations.evaluation_folder import BATCHES, Format
from roost.package.results.evaluations.row_columns import (
    ERROR,
    GROUP,
    ID,
    ColumnType,
    RowColumn,
    cast,
    column_of,
    columns_of_rows,
    concatenate,
    join,
    ordered_names,
)
from roost.package.results.evaluations.row_files import TYPES_FILE, PartMeta, RowFile

_ROWS, _PARTS = "rows", "parts"
_MAX_GROUP_NUMBERS = 2**22
"""Numbers of a row group of the merged rows, which bounds the memory that merging and reading take."""
_MAX_GROUP_ROWS, _MIN_GROUP_ROWS = 65_536, 64
_MAX_NAMED = 5

Columns = Mapping[str, Any]
"""Values of many rows by name: a NumPy array or a sequence with an item for each row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a cell, as columns in the order of the file."""

    columns: dict[str, RowColumn]

    def __len__(self) -> int:
        return len(self.columns[ID]) if ID in self.columns else 0

    @property
    def ids(self) -> list[Any]:
        """The ids of the samples."""
        return self.columns[ID].items() if ID in self.columns else []

    @property
    def metrics(self) -> list[str]:
        """The names of the columns of numbers."""
        return metric_names({name: column.type for name, column in self.columns.items()})

    @property
    def groups(self) -> list[str]:
        """The names of the groups, without their prefix."""
        return [name.removeprefix(GROUP) for name in self.columns if name.startswith(GROUP)]

    @property
    def evaluated(self) -> np.ndarray[Any, Any]:
        """The places of the rows of samples that were not skipped."""
        if ERROR not in self.columns:
            return np.arange(len(self))
        errors = self.columns[ERROR].items()
        return np.array([place for place, error in enumerate(errors) if error is None], np.int64)

    def row(self, place: int) -> dict[str, Any]:
        """Returns one row without its missing values."""
        here = np.array([place])
        found = {name: column.take(here).items()[0] for name, column in self.columns.items()}
        return {name: value for name, value in found.items() if value is not None}


def metric_names(types: Mapping[str, ColumnType]) -> list[str]:
    """Returns the names of the columns whose numbers are metrics."""
    return [
        name
        for name, type_ in types.items()
        if type_.kind in ("bool", "int", "float") and name != ID and not name.startswith(GROUP)
    ]


def result_names(types: Mapping[str, ColumnType]) -> list[str]:
    """Returns the names of the columns with results of `Runner.test`."""
    return [name for name in types if name not in (ID, ERROR) and not name.startswith(GROUP)]


# ---- parts ----------------------------------------------------------------------------------------------


def row_format(cell: Path) -> Format:
    """Returns the format that cell.json names.

    Raises:
        RoostError: There is no such file, or it cannot be read.
        ConfigError: It is Parquet, and pyarrow is not installed.
    """
    found = evaluation_folder.read_cell(cell)
    if found is None:
        raise RoostError("the folder is that of no cell", where=cell, fix="evaluate again")
    row_files.require(found.format, cell)
    return found.format


def write_part(
    cell: Path,
    batches: Sequence[int],
    rows: Sequence[Mapping[str, Any]] | Columns,
    *,
    session: int,
    rank: int,
    batch_values: Mapping[int, Mapping[str, Any]] | None = None,
) -> Path:
    """Writes the rows of whole batches, durably and atomically.

    Args:
        cell: The folder of the cell.
        batches: The numbers of the batches; one without a row is finished by being named here.
        rows: Their rows, or (much cheaper) columns of equal length by name. Both have the column ``id``.
        session: The number of the session.
        rank: The rank.
        batch_values: By batch: values that are of the batch and not of a sample, as JSON.

    Raises:
        ContractError: A value is none that a row can hold.
        OSError: The part could not be written.
    """
    columns = _columns(rows) if isinstance(rows, Mapping) else columns_of_rows(rows)
    columns.setdefault(ID, column_of([]))  # a part of empty batches has a column, too
    lengths = {name: len(column) for name, column in columns.items()}
    assert len(set(lengths.values())) <= 1, f"columns of different lengths: {lengths}"
    assert batches, "a part without a batch"
    folder = cell / _PARTS
    durable.make_folder(folder, exist_ok=True)
    path = folder / f"{batches[0]:08d}-{rank}-{session}.{row_format(cell)}"
    types = {name: column.type for name, column in columns.items()}
    values = {int(batch): dict(one) for batch, one in (batch_values or {}).items()}
    row_files.write(path, PartMeta(types, [int(batch) for batch in batches], values), [columns])
    return path


def _columns(values: Columns) -> dict[str, RowColumn]:
    return {name: one if isinstance(one, RowColumn) else column_of(one, name) for name, one in values.items()}


def _parts(cell: Path) -> list[RowFile]:
    """Opens the parts of a cell, by their first batch."""
    folder = cell / _PARTS
    if not folder.is_dir():
        return []
    return [RowFile(path) for path in sorted(folder.iterdir()) if not durable.is_staging(path.name)]


def finished_batches(cell: Path) -> set[int]:
    """Returns the numbers of the batches whose rows are in parts.

    Raises:
        ConfigError: They are Parquet, and pyarrow is not installed.
        RoostError: A part cannot be read.
    """
    return {batch for part in _parts(cell) for batch in part.meta.batches}


def rows_path(cell: Path) -> Path | None:
    """Returns the file with all rows of a cell; None before they are merged."""
    found = [cell / f"{_ROWS}.{suffix}" for suffix in ("parquet", "jsonl")]
    return next((path for path in found if path.is_file()), None)


def merge(cell: Path, ordered_ids: Sequence[Any]) -> None:
    """Writes the rows of all parts into one file, by the position of their ids, and removes the parts.

    The bytes of the file depend on the rows alone, not on how they were divided into parts. Besides the
    places of the ids a part and a row group are in memory at a time.

    Args:
        cell: The folder of the cell.
        ordered_ids: The ids of the set in its order.

    Raises:
        RoostError: An id is missing, doubled or unknown; or a part cannot be read.
        OSError: The rows could not be written; the parts remain.
    """
    if rows_path(cell) is None:
        parts = _parts(cell)
        places = _places(cell, parts, ordered_ids)
        names = ordered_names({name for part in parts for name in part.meta.types})
        types = {
            name: join(part.meta.types[name] for part in parts if name in part.meta.types) for name in names
        }
        types = types or {ID: ColumnType("empty")}
        path = cell / f"{_ROWS}.{row_format(cell)}"
        meta = PartMeta(types)
        if path.suffix == ".jsonl":
            durable.write(cell / TYPES_FILE, meta.encode() + b"\n")
        _write_batch_values(cell, parts)
        groups = _row_groups(parts, places, types, len(ordered_ids))
        row_files.write(path, meta, groups, has_header=False)
    if (cell / _PARTS).is_dir():
        durable.remove_folder(cell / _PARTS)


def _places(cell: Path, parts: Sequence[RowFile], ordered_ids: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Returns for each part the positions of its rows in the set."""
    known = _IdPlaces(ordered_ids)
    seen = np.zeros(len(ordered_ids), bool)
    found = []
    for part in parts:
        ids = [value for chunk in part.chunks([ID]) for value in chunk[ID].items()]
        places = known.places(ids)
        unknown = [value for value, place in zip(ids, places.tolist(), strict=True) if place < 0]
        if unknown:
            raise _wrong_ids(cell, "are not of the set", unknown)
        order = np.sort(places)
        twice = order[1:][order[1:] == order[:-1]] if len(order) else order
        again = np.concatenate([twice, places[seen[places]]])
        if len(again):
            raise _wrong_ids(cell, "have more than one row", [ordered_ids[int(place)] for place in again])
        seen[places] = True
        found.append(places)
    if not seen.all():
        absent = np.flatnonzero(~seen)
        raise _wrong_ids(cell, "have no row", [ordered_ids[int(place)] for place in absent])
    return found


class _IdPlaces:
    """The positions of ids in their set."""

    def __init__(self, ordered_ids: Sequence[Any]) -> None:
        self._count = len(ordered_ids)
        self._by_id: dict[Any, int] | None = None
        if ordered_ids != range(self._count):
            self._by_id = {id_: place for place, id_ in enumerate(ordered_ids)}

    def places(self, ids: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Returns the position of each id, -1 for one that is not of the set."""
        if self._by_id is not None:
            find = self._by_id.get
            return np.fromiter((find(id_, -1) for id_ in ids), np.int64, len(ids))
        if all(type(id_) is int for id_ in ids):
            found = np.array(ids, np.int64)
            return np.where((found >= 0) & (found < self._count), found, -1)
        return np.full(len(ids), -1, np.int64)


def _wrong_ids(cell: Path, what: str, ids: Sequence[Any]) -> RoostError:
    named = ", ".join(repr(id_) for id_ in ids[:_MAX_NAMED])
    more = f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else ""
    return RoostError(
        f"ids of this cell {what}: {named}{more}", where=cell, fix="remove its folder, and evaluate it again"
    )


def _row_groups(
    parts: Sequence[RowFile],
    places: Sequence[np.ndarray[Any, Any]],
    types: Mapping[str, ColumnType],
    count: int,
) -> Iterator[dict[str, RowColumn]]:
    """Yields the rows of all parts in order, in groups whose size follows from their types alone."""
    numbers = sum(int(np.prod(type_.shape)) for type_ in types.values())
    size = min(max(_MAX_GROUP_NUMBERS // max(numbers, 1), _MIN_GROUP_ROWS), _MAX_GROUP_ROWS)
    extent = [(int(one.min()), int(one.max())) if len(one) else (0, -1) for one in places]
    for first in range(0, max(count, 1), size):
        pieces: dict[str, list[RowColumn]] = {name: [] for name in types}
        order = []
        for part, positions, (low, high) in zip(parts, places, extent, strict=True):
            if high < first or low >= first + size:
                continue
            here = np.flatnonzero((positions >= first) & (positions < first + size))
            if not len(here):
                continue
            read = {name: concatenate(some) for name, some in _whole(part, types).items()}
            for name, type_ in types.items():
                none = RowColumn(ColumnType("empty"), [None] * len(positions))
                column = read.get(name, none)
                pieces[name].append(cast(column.take(here), type_))
            order.append(positions[here])
        if not order:
            continue
        sorted_ = np.argsort(np.concatenate(order), kind="stable")
        yield {name: concatenate(some).take(sorted_) for name, some in pieces.items()}


def _whole(part: RowFile, types: Mapping[str, ColumnType]) -> dict[str, list[RowColumn]]:
    found: dict[str, list[RowColumn]] = {}
    for chunk in part.chunks(list(types)):
        for name, column in chunk.items():
            found.setdefault(name, []).append(column)
    return found


def _write_batch_values(cell: Path, parts: Iterable[RowFile]) -> None:
    found = {batch: one for part in parts for batch, one in part.meta.batch_values.items()}
    if found:
        lines = [msgspec.json.encode({"batch": batch, **found[batch]}) for batch in sorted(found)]
        durable.write(cell / BATCHES, b"\n".join(lines) + b"\n")


# ---- readers --------------------------------------------------------------------------------------------


def _merged(cell: Path) -> RowFile:
    path = rows_path(cell)
    if path is None:
        raise NotFound(
            "this cell of an evaluation has no rows yet",
            received=str(cell),
            fix="evaluate with the same name again: it continues",
        )
    return RowFile(path, has_header=False)


def column_types(cell: Path) -> dict[str, ColumnType]:
    """Returns the types of the columns of a finished cell, in their order. Raises as `read_rows`."""
    return dict(_merged(cell).meta.types)


def read_rows(cell: Path, names: Sequence[str] | None = None) -> Rows:
    """Reads the rows of a finished cell.

    Args:
        cell: Its folder.
        names: The columns; None: all.

    Raises:
        NotFound: The cell is not finished.
        ConfigError: Its rows are Parquet, and pyarrow is not installed.
        RoostError: They cannot be read.
    """
    file = _merged(cell)
    types = {name: type_ for name, type_ in file.meta.types.items() if names is None or name in names}
    none = {name: cast(RowColumn(ColumnType("empty"), []), type_) for name, type_ in types.items()}
    chunks = list(file.chunks(names)) or [none]
    return Rows({name: concatenate([chunk[name] for chunk in chunks]) for name in types})


def rows_at(cell: Path, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Returns single rows of a finished cell by their positions; a missing value is None. Raises as
    `read_rows`."""
    return _merged(cell).rows_at(positions)


def read_batch_values(cell: Path) -> list[dict[str, Any]]:
    """Returns what batches of a finished cell have of their own, by their numbers."""
    try:
        lines = (cell / BATCHES).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line) for line in lines]


def skipped(rows: Rows) -> list[tuple[Any, str]]:
    """Returns id and error of the samples that were skipped."""
    if ERROR not in rows.columns:
        return []
    errors = rows.columns[ERROR].items()
    return [(id_, str(error)) for id_, error in zip(rows.ids, errors, strict=True) if error is not None]
