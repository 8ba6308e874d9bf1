"""`Arrays`: a map-style set whose samples are the rows of arrays."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.base.text.suggestions import did_you_mean

ArraySource = Any
_SUFFIXES = (".npy", ".npz", ".csv")
_DEFAULT_DTYPES = {"f": torch.float32, "i": torch.int64}
"""By NumPy kind: floats and integers of any width become these; uint8 and bool stay as they are."""


class Arrays:
    """A set of the rows of arrays, all in memory; draws no random numbers.

    ```
    Arrays("data/digits.npz", fields=["images", "labels"], scale=1 / 255, part=[0.0, 0.8])
    Arrays("data/wine.csv", targets="quality")
    Arrays((x, y), shape=[1, 8, 8])
    ```

    Args:
        arrays: A file (.npy, .npz, .csv with a header line) or several .npy files; arrays, in a tuple or by
            name; or a function without arguments that returns any of these.
        fields: The parts of a sample. A list of names or positions makes it a tuple, a mapping of names a
            dict. A list in place of one name stacks these columns. None: all arrays; for a csv file all
            columns but the targets, stacked, and then each target.
        targets: For a csv file, if ``fields`` is None: the columns that are not stacked.
        dtype: Dtype of the first field, such as float32; or of several, by name or position. None: floats
            become float32 and integers int64; uint8 and bool stay.
        scale: Factor, given like ``dtype``.
        shape: Shape of a sample, given like ``dtype``: [1, 8, 8] for rows of 64.
        part: Begin and end of a part of all samples, in a fixed random order: [0.0, 0.8] and [0.8, 1.0] have
            no sample in common. None: all samples, in the order of the file.
        seed: Seed of that order, independent of the run's seed.

    Raises:
        ContractError: The arguments do not fit the arrays; names the arrays with their shapes.
        OSError: A file cannot be read.
    """

    draws_randomness = False

    def __init__(
        self,
        arrays: ArraySource,
        *,
        fields: Sequence[Any] | Mapping[str, Any] | None = None,
        targets: str | Sequence[str] | None = None,
        dtype: str | Mapping[str, str] | None = None,
        scale: float | Mapping[str, float] | None = None,
        shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        part: Sequence[float] | None = None,
        seed: int = 0,
    ) -> None:
        found = _NamedArrays(arrays)
        chosen = found.select(fields, targets)
        self._names = list(chosen) if isinstance(fields, Mapping) else None
        keys = list(chosen)
        options = [
            _by_field(name, one, keys) for name, one in _option_items(dtype=dtype, scale=scale, shape=shape)
        ]
        self.tensors = [_to_tensor(key, chosen[key], *(one.get(key) for one in options)) for key in keys]
        found.check_lengths(dict(zip(keys, self.tensors, strict=True)))
        if part is not None:
            rows = torch.from_numpy(_select_rows(len(self.tensors[0]), part, seed))
            self.tensors = [tensor[rows] for tensor in self.tensors]

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> Any:
        return self._as_sample(tensor[index] for tensor in self.tensors)

    def batch(self, indices: Sequence[int]) -> Any:
        """Returns a whole batch at once, the same as torch's collate makes from its samples."""
        rows = torch.as_tensor(indices)
        found = self._as_sample(tensor[rows] for tensor in self.tensors)
        return list(found) if isinstance(found, tuple) else found

    def _as_sample(self, values: Iterable[Tensor]) -> Any:
        return tuple(values) if self._names is None else dict(zip(self._names, values, strict=True))


def _option_items(**options: Any) -> Iterable[tuple[str, Any]]:
    return options.items()


# ---- reading the arrays ---------------------------------------------------------------------------------


class _NamedArrays:
    """The arrays of a source by name, or by position as text (``"0"``) if they have no names."""

    def __init__(self, source: ArraySource) -> None:
        self._source_name = _source_name(source)
        self._is_csv = False
        self.arrays = {str(name): self._to_array(str(name), one) for name, one in self._read(source).items()}
        if not self.arrays:
            raise self._error("there are no arrays", "give at least one")

    def _read(self, source: ArraySource) -> Mapping[str, Any]:
        if callable(source):
            source = source()
        if isinstance(source, str | Path):
            return self._read_file(Path(source))
        if isinstance(source, Mapping):
            # A Bunch of scikit-learn also holds descriptions.
            return {name: one for name, one in source.items() if isinstance(one, np.ndarray | Tensor | list)}
        if isinstance(source, np.ndarray | Tensor):
            return {"0": source}
        if isinstance(source, list | tuple):
            named = {str(number): one for number, one in enumerate(source)}
            return {name: self._read_element(one) for name, one in named.items()}
        raise self._error(
            f"{type(source).__name__} is not an array", "give arrays, or a .npy, .npz or .csv file"
        )

    def _read_element(self, source: ArraySource) -> Any:
        if not isinstance(source, str | Path):
            return source
        found = self._read_file(Path(source))
        if len(found) > 1:
            raise self._error(f"{source} holds several arrays ({', '.join(found)})", "give this file alone")
        return next(iter(found.values()))

    def _read_file(self, path: Path) -> Mapping[str, Any]:
        if path.suffix == ".csv":
            self._is_csv = True
            return _read_csv(path)
        if path.suffix not in _SUFFIXES:
            raise self._error(
                f"{path} is not a file of arrays", f"give one that ends in {', '.join(_SUFFIXES)}"
            )
        try:
            found = np.load(path, allow_pickle=False)
            return (
                {"0": found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
            )
        except (ValueError, EOFError) as error:
            fix = "save numbers, not objects: np.save(path, array.astype(np.float32))"
            raise self._error(f"{path} cannot be read without pickle: {error}", fix) from error

    def _to_array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        try:
            made = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
        except ValueError as error:
            raise self._error(f"array {name} cannot be read: {error}", "give rows of equal length") from error
        if not made.ndim:
            raise self._error(f"array {name} is one number", "give a row for each sample")
        return made

    def _error(self, message: str, fix: str) -> ContractError:
        return ContractError(f"{self._source_name}: {message}", fix=fix)

    # ---- selecting fields -------------------------------------------------------------------------------

    def select(
        self, fields: Sequence[Any] | Mapping[str, Any] | None, targets: str | Sequence[str] | None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the arrays of the fields of a sample, by name or position."""
        if targets is not None and (fields is not None or not self._is_csv):
            raise self._error("targets is for a .csv file without fields", "name them in fields")
        if fields is None:
            fields = self._csv_fields(targets) if self._is_csv else list(self.arrays)
        if isinstance(fields, str):
            fields = [fields]
        named = fields if isinstance(fields, Mapping) else {str(i): one for i, one in enumerate(fields)}
        if not named:
            raise self._error("fields is empty", f"name some of {self._shapes()}")
        return {str(name): self._select_field(field) for name, field in named.items()}

    def _csv_fields(self, targets: str | Sequence[str] | None) -> list[Any]:
        last = [targets] if isinstance(targets, str) else list(targets or [])
        for name in last:
            self._by_name(name)
        rest = [name for name in self.arrays if name not in last]
        return [rest, *last] if rest else last

    def _select_field(self, field: Any) -> np.ndarray[Any, Any]:
        if not isinstance(field, list | tuple):
            return self._by_name(field)
        columns = [self._by_name(one) for one in field]
        if not columns or len({column.shape for column in columns}) > 1:
            raise self._error(f"{field} cannot be stacked", f"name arrays of one shape: {self._shapes()}")
        return np.stack(columns, axis=1)

    def _by_name(self, name: Any) -> np.ndarray[Any, Any]:
        if str(name) in self.arrays:
            return self.arrays[str(name)]
        fix = f"{did_you_mean(str(name), self.arrays)}name one of {self._shapes()}"
        raise self._error(f"there is no array {name!r}", fix)

    def _shapes(self) -> str:
        return ", ".join(f"{name} {one.dtype} {one.shape}" for name, one in self.arrays.items())

    def check_lengths(self, fields: Mapping[str, Tensor]) -> None:
        """Raises if the fields have different numbers of rows."""
        if len({len(one) for one in fields.values()}) > 1:
            shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in fields.items())
            raise self._error(
                f"the fields have different numbers of rows: {shapes}", "give one row for each sample"
            )


def _source_name(source: ArraySource) -> str:
    if isinstance(source, str | Path):
        return str(source)
    if callable(source):
        return f"{getattr(source, '__name__', type(source).__name__)}()"
    return "arrays"


def _read_csv(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the columns of a csv file by the names in its header; int64 if all values are integers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        fix = "save it as UTF-8, with a header line and numbers"
        raise ContractError(f"{path} cannot be read as csv: {error}", fix=fix) from None
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise ContractError(
                f"{path}: row {number} has {len(row)} columns, and the first has {len(names)}",
                fix="give each row a value for each column",
            )
    if len(set(names)) < len(names):
        raise ContractError(
            f"{path}: two columns have the same name", received=names, fix="give each column its own name"
        )
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: _parse_column(path, name, column) for name, column in zip(names, columns, strict=True)}


def _parse_column(path: Path, name: str, column: Sequence[str]) -> np.ndarray[Any, Any]:
    for kind in (np.int64, np.float64):
        try:
            return np.array(column, dtype=kind)
        except (ValueError, OverflowError):
            continue
    bad = next(one for one in column if not _is_number(one))
    raise ContractError(
        f"{path}: column {name!r} holds no numbers", received=bad, fix="give its classes as 0, 1, 2, ..."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- making tensors -------------------------------------------------------------------------------------


def _by_field(option: str, given: Any, fields: Sequence[str]) -> dict[str, Any]:
    """Returns an option by field; a value that is not a mapping is for the first field."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {fields[0]: given}
    found = {str(name): one for name, one in given.items()}
    for name in found:
        if name not in fields:
            raise ContractError(
                f"{option} is for the field {name!r}, which does not exist",
                received=dict(given),
                fix=f"{did_you_mean(name, fields)}name one of the fields {', '.join(fields)}",
            )
    return found


def _to_tensor(
    name: str,
    array: np.ndarray[Any, Any],
    dtype: str | None,
    scale: float | None,
    shape: Sequence[int] | None,
) -> Tensor:
    if array.dtype.kind not in "fiub":
        raise ContractError(
            f"field {name} is {array.dtype} {array.shape}, which holds no numbers", fix="give numbers"
        )
    made = torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)))
    kind = (
        _parse_dtype(name, dtype) if dtype is not None else _DEFAULT_DTYPES.get(array.dtype.kind, made.dtype)
    )
    if scale is not None:
        made = made.to(kind if kind.is_floating_point else torch.float32) * scale
        kind = kind if dtype is not None else made.dtype
    made = made.to(kind)
    return made if shape is None else _reshape(name, made, shape)


def _parse_dtype(name: str, text: str) -> torch.dtype:
    found = getattr(torch, str(text), None)
    if not isinstance(found, torch.dtype):
        fix = "write it as float32, int64, uint8 or bool"
        raise ContractError(f"the dtype of field {name} is not a dtype of torch", received=text, fix=fix)
    return found


def _reshape(name: str, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    if math.prod(shape) != math.prod(tensor.shape[1:]):
        raise ContractError(
            f"a sample of field {name} has the shape {tuple(tensor.shape[1:])} with another number of "
            "elements",
            received=list(shape),
            fix=f"give a shape of {math.prod(tensor.shape[1:])} numbers",
        )
    return tensor.reshape(len(tensor), *shape)


def _select_rows(number: int, part: Sequence[float], seed: int) -> np.ndarray[Any, Any]:
    is_valid = len(part) == 2 and all(isinstance(one, int | float) for one in part)
    if not is_valid or not 0 <= part[0] < part[1] <= 1:
        raise ContractError(
            "part is not the begin and end of a part", received=list(part), fix="write it as [0.0, 0.8]"
        )
    order = np.random.Generator(np.random.PCG64(seed)).permutation(number)
    begin, end = (round(number * one) for one in part)
    if begin == end:
        raise ContractError(
            f"the part of {number} samples is empty", received=list(part), fix="give a larger part"
        )
    return order[begin:end]
