"""A set whose samples are the rows of arrays."""

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

Source = Any
_SUFFIXES = (".npy", ".npz", ".csv")
_DEFAULT_DTYPES = {"f": torch.float32, "i": torch.int64}
"""Floating and whole numbers of any width become these; bytes (uint8) and bool stay as they are."""


class Arrays:
    """Samples that are the rows of arrays, all in memory; nothing is drawn at random.

    ```
    Arrays("data/digits.npz", fields=["images", "labels"], scale=1 / 255, part=[0.0, 0.8])
    Arrays("data/wine.csv", targets="quality")
    Arrays((x, y), shape=[1, 8, 8])
    ```

    Args:
        arrays: A file (.npy, .npz, .csv with a line of names) or several .npy; arrays, in a tuple or by name;
            or a function without arguments that gives these.
        fields: What a sample holds. A list of names, or of positions: a tuple of them. A mapping of names: a
            dict. In place of one name a list of some, whose columns are joined. All arrays when None; of a
            csv all columns but the targets, joined, and then each target.
        targets: Of a csv, when ``fields`` is None: the columns that are not joined.
        dtype: Of the first field, such as float32; or of several, by name or position. Floating numbers
            become float32 and whole ones int64 when None; uint8 and bool stay.
        scale: Factor, likewise.
        shape: Of a sample, likewise: [1, 8, 8] for rows of 64.
        part: Begin and end of a part of all samples, in a fixed random order: [0.0, 0.8] and [0.8, 1.0] have
            no sample in common. All, in the order of the file, when None.
        seed: Of that order; it has nothing to do with the run's.

    Raises:
        ContractError: Something does not fit; names the arrays that there are, with their shapes.
        OSError: A file cannot be read.
    """

    draws_randomness = False

    def __init__(
        self,
        arrays: Source,
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
        chosen = found.chosen(fields, targets)
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
        return self._joined(tensor[index] for tensor in self.tensors)

    def batch(self, indices: Sequence[int]) -> Any:
        """A whole batch at once; the same that joining its samples gives."""
        rows = torch.as_tensor(indices)
        found = self._joined(tensor[rows] for tensor in self.tensors)
        return list(found) if isinstance(found, tuple) else found

    def _joined(self, values: Iterable[Tensor]) -> Any:
        return tuple(values) if self._names is None else dict(zip(self._names, values, strict=True))


def _option_items(**options: Any) -> Iterable[tuple[str, Any]]:
    return options.items()


# ---- where the arrays come from -------------------------------------------------------------------------


class _NamedArrays:
    """Arrays by name; those without one are called by their positions."""

    def __init__(self, source: Source) -> None:
        self._from = _source_name(source)
        self._is_csv = False
        self.arrays = {str(name): self._array(str(name), one) for name, one in self._read(source).items()}
        if not self.arrays:
            raise self._wrong("there are no arrays", "give one at least")

    def _read(self, source: Source) -> Mapping[str, Any]:
        if callable(source):
            source = source()
        if isinstance(source, str | Path):
            return self._read_file(Path(source))
        if isinstance(source, Mapping):
            # scikit-learn's Bunch holds descriptions, too.
            return {name: one for name, one in source.items() if isinstance(one, np.ndarray | Tensor | list)}
        if isinstance(source, np.ndarray | Tensor):
            return {"0": source}
        if isinstance(source, list | tuple):
            named = {str(number): one for number, one in enumerate(source)}
            return {name: self._one_of_several(one) for name, one in named.items()}
        raise self._wrong(f"{type(source).__name__} is no array", "give arrays, or a .npy, .npz or .csv file")

    def _one_of_several(self, source: Source) -> Any:
        if not isinstance(source, str | Path):
            return source
        found = self._read_file(Path(source))
        if len(found) > 1:
            raise self._wrong(
                f"{source} holds several arrays ({', '.join(found)})", "give one such file alone"
            )
        return next(iter(found.values()))

    def _read_file(self, path: Path) -> Mapping[str, Any]:
        if path.suffix == ".csv":
            self._is_csv = True
            return _read_csv(path)
        if path.suffix not in _SUFFIXES:
            raise self._wrong(f"{path} is no file of arrays", f"give one that ends in {', '.join(_SUFFIXES)}")
        try:
            found = np.load(path, allow_pickle=False)
            return (
                {"0": found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
            )
        except (ValueError, EOFError) as error:
            fix = "save numbers, not objects: np.save(path, array.astype(np.float32))"
            raise self._wrong(f"{path} cannot be read without pickle: {error}", fix) from error

    def _array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        try:
            made = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
        except ValueError as error:
            raise self._wrong(f"array {name} is no array: {error}", "give rows of one length") from error
        if not made.ndim:
            raise self._wrong(f"array {name} is one number", "give a row for each sample")
        return made

    def _wrong(self, message: str, fix: str) -> ContractError:
        return ContractError(f"{self._from}: {message}", fix=fix)

    # ---- which of them ----------------------------------------------------------------------------------

    def chosen(
        self, fields: Sequence[Any] | Mapping[str, Any] | None, targets: str | Sequence[str] | None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The fields of a sample, by name or position."""
        if targets is not None and (fields is not None or not self._is_csv):
            raise self._wrong("targets is for a .csv file without fields", "name them in fields")
        if fields is None:
            fields = self._of_csv(targets) if self._is_csv else list(self.arrays)
        if isinstance(fields, str):
            fields = [fields]
        named = fields if isinstance(fields, Mapping) else {str(i): one for i, one in enumerate(fields)}
        if not named:
            raise self._wrong("fields is empty", f"name some of {self._shapes()}")
        return {str(name): self._field(asked) for name, asked in named.items()}

    def _of_csv(self, targets: str | Sequence[str] | None) -> list[Any]:
        last = [targets] if isinstance(targets, str) else list(targets or [])
        for name in last:
            self._one(name)
        rest = [name for name in self.arrays if name not in last]
        return [rest, *last] if rest else last

    def _field(self, asked: Any) -> np.ndarray[Any, Any]:
        if not isinstance(asked, list | tuple):
            return self._one(asked)
        columns = [self._one(one) for one in asked]
        if not columns or len({column.shape for column in columns}) > 1:
            raise self._wrong(f"{asked} cannot be joined", f"name arrays of one shape: {self._shapes()}")
        return np.stack(columns, axis=1)

    def _one(self, name: Any) -> np.ndarray[Any, Any]:
        if str(name) in self.arrays:
            return self.arrays[str(name)]
        fix = f"{did_you_mean(str(name), self.arrays)}there are {self._shapes()}"
        raise self._wrong(f"there is no array {name!r}", fix)

    def _shapes(self) -> str:
        return ", ".join(f"{name} {one.dtype} {one.shape}" for name, one in self.arrays.items())

    def check_lengths(self, fields: Mapping[str, Tensor]) -> None:
        """That each has as many rows."""
        if len({len(one) for one in fields.values()}) > 1:
            shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in fields.items())
            raise self._wrong(f"the fields have different numbers of rows: {shapes}", "give one row a sample")


def _source_name(source: Source) -> str:
    if isinstance(source, str | Path):
        return str(source)
    if callable(source):
        return f"{getattr(source, '__name__', type(source).__name__)}()"
    return "arrays"


def _read_csv(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a table by the names in its first line; whole numbers where all are."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise ContractError(
                f"{path}: row {number} has {len(row)} columns, and the first has {len(names)}",
                fix="give each row a value for each column",
            )
    if len(set(names)) < len(names):
        raise ContractError(f"{path}: two columns have one name", received=names, fix="name each otherwise")
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


# ---- what is made of them -------------------------------------------------------------------------------


def _by_field(option: str, given: Any, fields: Sequence[str]) -> dict[str, Any]:
    """An option by field: what is no mapping is for the first one."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {fields[0]: given}
    found = {str(name): one for name, one in given.items()}
    for name in found:
        if name not in fields:
            raise ContractError(
                f"{option} is for the field {name!r}, and there is none",
                received=dict(given),
                fix=f"{did_you_mean(name, fields)}the fields are {', '.join(fields)}",
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
        raise ContractError(f"the dtype of field {name} is none of torch", received=text, fix=fix)
    return found


def _reshape(name: str, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    if math.prod(shape) != math.prod(tensor.shape[1:]):
        raise ContractError(
            f"a sample of field {name} has the shape {tuple(tensor.shape[1:])}, which makes no other one",
            received=list(shape),
            fix=f"give a shape of {math.prod(tensor.shape[1:])} numbers",
        )
    return tensor.reshape(len(tensor), *shape)


def _select_rows(number: int, part: Sequence[float], seed: int) -> np.ndarray[Any, Any]:
    good = len(part) == 2 and all(isinstance(one, int | float) for one in part)
    if not good or not 0 <= part[0] < part[1] <= 1:
        raise ContractError(
            "part is no begin and end of a share", received=list(part), fix="write it as [0.0, 0.8]"
        )
    order = np.random.Generator(np.random.PCG64(seed)).permutation(number)
    begin, end = (round(number * one) for one in part)
    if begin == end:
        raise ContractError(
            f"part of {number} samples holds none", received=list(part), fix="take a larger share"
        )
    return order[begin:end]
