"""The values of samples, and of whole batches, in what `Runner.test` returned for one batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.evaluation.file_writer import FileWriter, is_file_value
from roost.package.results.evaluations.row_columns import (
    ERROR,
    GROUP,
    ID,
    MAX_INLINE_NUMBERS,
    NONFINITE,
    is_unicode,
)

_FIX = (
    'return values by name, each with one entry for each sample, or one number: {"wer": rates, "text": texts}'
)


_OF_ROWS, _OF_BATCHES = frozenset([ERROR, NONFINITE]), frozenset(["batch", "samples"])
"""Names that the rows, and the values of batches, use themselves."""
_NUMPYS = frozenset([torch.float16, torch.float32, torch.float64])
"""The floating types that NumPy has."""


class SampleValues(NamedTuple):
    """The values of one batch."""

    columns: dict[str, Any]
    """For each name an array (samples, ...), or a list with an item for each sample."""
    means: dict[str, float]
    """Values of the batch as a whole."""


def split_values(output: object, ids: Sequence[Any], files: FileWriter) -> SampleValues:
    """Divides what `Runner.test` returned for a batch. A sync point for values on an accelerator.

    Args:
        output: By name: a tensor, array or list with an entry for each sample, or a number for the batch. An
            entry may be a number, text, array, `Media`, figure, path of a file, or a list or mapping of plain
            values. The name ``id`` is left out: the ids are those of the set.
        ids: The ids of the samples.
        files: Takes the values that become files.

    Raises:
        ContractError: A value is none of these, or its length is not the number of samples.
    """
    if not isinstance(output, Mapping):
        raise ContractError(
            "test() must return a mapping of results by name", received=type(output).__name__, fix=_FIX
        )
    found = SampleValues({}, {})
    for name, value in output.items():
        if name == ID:
            continue
        _check_name(name)
        value = _on_host(value, name)
        if isinstance(value, bool | int | float):
            found.means[name] = _mean(name, value)
        else:
            found.columns[name] = _column(name, value, ids, files)
    return found


def is_metric(column: Any) -> bool:
    """Whether a column of a batch has numbers."""
    if isinstance(column, np.ndarray):
        return column.ndim == 1 and column.dtype.kind in "biuf"
    return all(isinstance(one, bool | int | float) or one is None for one in column)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise ContractError("a result of test() has no name", received=name, fix=_FIX)
    if name in _OF_ROWS or name.startswith(GROUP):
        raise ContractError(
            f"test() returns {name!r}, a name that roost uses in its rows", fix="return it under another name"
        )


def _mean(name: str, value: float) -> float:
    if name in _OF_BATCHES:
        raise ContractError(
            f"test() returns one number as {name!r}, a name that roost uses for batches",
            fix="return it under another name",
        )
    try:
        return float(value)
    except OverflowError:
        raise ContractError(f"test() returned a {name} that is too large for a number", fix=_FIX) from None


def _on_host(value: Any, name: str) -> Any:
    """Returns a tensor as an array, and an array of no dimension as a number."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_quantized or value.is_complex():
            kind = f"{'complex' if value.is_complex() else 'meta' if value.is_meta else value.layout}"
            raise ContractError(
                f"test() returned a {name} that a row cannot hold: a tensor of {value.dtype} ({kind})",
                fix="return dense tensors of real numbers",
            )
        value = value.detach()
        is_numpys = not value.is_floating_point() or value.dtype in _NUMPYS
        value = (value if is_numpys else value.float()).cpu().numpy()
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f" and value.dtype.itemsize > 8:
        value = value.astype(np.float64)  # Parquet has no longer ones
    if isinstance(value, np.ndarray | np.generic) and not value.ndim and value.dtype.kind in "biuf":
        return value.item()
    return value


def _column(name: str, value: Any, ids: Sequence[Any], files: FileWriter) -> Any:
    count = len(ids)
    if count == 1 and (isinstance(value, str) or is_file_value(value)):
        value = [value]
    is_single = not hasattr(value, "__len__") or (isinstance(value, np.ndarray) and not value.ndim)
    if isinstance(value, str | bytes | Mapping | Set) or is_single:
        raise ContractError(
            f"test() returned a {name} that has no entry for each sample",
            received=type(value).__name__,
            fix=_FIX,
        )
    if len(value) != count:
        raise ContractError(
            f"test() returned {len(value):,} {name} for a batch of {count:,} samples",
            received=f"{type(value).__name__} {list(np.shape(value))}"
            if isinstance(value, np.ndarray)
            else None,
            fix=_FIX,
        )
    if isinstance(value, np.ndarray):
        numbers = math.prod(value.shape[1:])
        if value.dtype.kind in "biuf" and 0 < numbers <= MAX_INLINE_NUMBERS:
            return value
        if value.dtype.kind in "SU":
            return value.tolist()
    return [_entry(name, one, id_, files) for one, id_ in zip(value, ids, strict=True)]


def _entry(name: str, value: Any, id_: Any, files: FileWriter) -> Any:
    """Returns the value of one sample as a row holds it."""
    if is_file_value(value):
        return files.add(id_, name, value)
    if isinstance(value, Mapping) and set(value) == {"file"}:
        raise ContractError(
            f"test() returned a {name} like that of a file",
            received=dict(value),
            fix="return a pathlib.Path for a file that is to be kept, or use another key than 'file'",
        )
    value = _on_host(value, name)
    if isinstance(value, np.ndarray):
        return files.add(id_, name, value) if value.size > MAX_INLINE_NUMBERS else value.tolist()
    if isinstance(value, tuple):
        return list(value)
    assert not isinstance(value, Path)
    return value
