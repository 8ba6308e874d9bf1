"""The files of a prediction, written batch by batch in constant memory."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from roost.base.durable import NewFile
from roost.base.errors import ContractError
from roost.package.results.predictions import PREDICTIONS_FILE
from roost.train.reporting.array_bytes import as_array

MAX_LINE_NUMBERS = 8
"""Numbers of a sample that are written into its JSON line; larger arrays go into an .npy file."""

_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME_CHARACTERS = 100
_INDEX, _NONFINITE = "index", "nonfinite"
_FIX = 'return {"label": labels}, with tensors of shape (B, ...) or lists with an item for each sample'


class PredictionWriter:
    """Writes the files of one prediction into an existing folder. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self._lines: NewFile
        self._files: dict[str, _NpyWriter] = {}
        self._names: list[str] = []
        self.count = 0
        """Samples written so far."""

    def __enter__(self) -> Self:
        self._lines = self._open.enter_context(NewFile(self._folder / PREDICTIONS_FILE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def add(self, output: object, num_samples: int, *, first: int, most: int | None = None) -> None:
        """Writes the prediction of one batch.

        Args:
            output: Return value of `Runner.predict`.
            num_samples: Samples of the batch.
            first: Index of its first sample.
            most: Write at most so many samples of the batch; None: all.

        Raises:
            ContractError: The output is no mapping with an item for each sample, or its names, shapes or
                types differ from those of earlier batches.
            OSError: A file cannot be written.
        """
        values = _check_output(output, num_samples)
        if not self.count:
            self._begin(values)
        elif list(values) != self._names:
            raise ContractError(
                "predict() returned other names than for earlier batches",
                received=list(values),
                fix=f"return for each batch: {', '.join(self._names)}",
            )
        taken = num_samples if most is None else min(most, num_samples)
        for name, rows in self._files.items():
            rows.add(values[name], taken)
        inline = {name: _items(name, values[name]) for name in self._names if name not in self._files}
        for at in range(taken):
            self._lines.write(_line(first + at, {name: items[at] for name, items in inline.items()}))
        self.count += taken

    def _begin(self, values: Mapping[str, Any]) -> None:
        """Decides by the first batch which names are written into the lines and which into files."""
        self._names = list(values)
        used: set[str] = set()
        for name, value in values.items():
            if isinstance(value, np.ndarray) and (
                value[0].size > MAX_LINE_NUMBERS or value.dtype.kind == "c"
            ):
                self._files[name] = self._open.enter_context(_NpyWriter(self._folder, name, value, used))

    def values(self) -> dict[str, dict[str, Any]]:
        """Returns the description of all names, for `Meta.values`."""
        return {name: self._files[name].described() if name in self._files else {} for name in self._names}


class _NpyWriter:
    """One .npy file that grows by rows: NumPy's header has free space for the final number of rows."""

    def __init__(self, folder: Path, name: str, like: np.ndarray[Any, Any], used: set[str]) -> None:
        stem = _UNSAFE_CHARACTER.sub("_", name)[:_MAX_NAME_CHARACTERS].lstrip(".-") or "value"
        self.file, number = f"{stem}.npy", 2
        while self.file.casefold() in used:
            self.file, number = f"{stem}-{number}.npy", number + 1
        used.add(self.file.casefold())
        self._name, self._path = name, folder / self.file
        self._shape, self._dtype, self._rows = like.shape[1:], like.dtype, 0

    def __enter__(self) -> Self:
        self._out = NewFile(self._path)
        self._out.write(self._header())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._out.overwrite_at(self._header(), at=0)
        except BaseException as failed:
            self._out.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._out.__exit__(kind, error, trace)

    def _header(self) -> bytes:
        buffer = io.BytesIO()
        shape = (self._rows, *self._shape)
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(buffer, described)
        return buffer.getvalue()

    def add(self, array: object, taken: int) -> None:
        if not isinstance(array, np.ndarray) or (array.shape[1:], array.dtype) != (self._shape, self._dtype):
            now = (
                f"{array.dtype} {array.shape[1:]}" if isinstance(array, np.ndarray) else type(array).__name__
            )
            raise ContractError(
                f"predict() returned {self._dtype} {self._shape} for each sample of earlier batches",
                setting=self._name,
                received=now,
                fix="pad all samples to one shape, or return a list with a list for each sample",
            )
        rows = np.ascontiguousarray(array[:taken])
        if rows.size:
            self._out.write(rows.reshape(-1).view(np.uint8).data)
        self._rows += taken

    def described(self) -> dict[str, Any]:
        """Returns the entry of this file in `Meta.values`."""
        return {"file": self.file, "shape": [self._rows, *self._shape], "dtype": str(self._dtype)}


# ---- the output of predict() ----------------------------------------------------------------------------


def _check_output(output: object, num_samples: int) -> dict[str, Any]:
    """Checks the output and returns by name an array (B, ...) or a list with an item for each sample."""
    if not isinstance(output, Mapping) or not output:
        raise ContractError("predict() must return a mapping", received=type(output).__name__, fix=_FIX)
    made = {}
    for name, value in output.items():
        if not isinstance(name, str) or name in (_INDEX, _NONFINITE):
            raise ContractError(
                "predict() returned a name that is reserved or no text", received=name, fix="rename it"
            )
        if isinstance(value, torch.Tensor):
            value = as_array(value)
        if not isinstance(value, np.ndarray | list | tuple) or (
            isinstance(value, np.ndarray) and not value.ndim
        ):
            received = "()" if isinstance(value, np.ndarray) else type(value).__name__
            raise ContractError(
                "predict() must return an item for each sample of the batch",
                setting=name,
                received=received,
                fix=_FIX,
            )
        if len(value) != num_samples:
            received = str(value.shape) if isinstance(value, np.ndarray) else f"{len(value)} items"
            raise ContractError(
                f"predict() received a batch of {num_samples} samples and returned another first dimension",
                setting=name,
                received=received,
                fix=_FIX,
            )
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            value = list(value)
        elif isinstance(value, np.ndarray) and value.dtype == np.longdouble:
            value = value.astype(np.float64)
        made[name] = value
    return made


def _items(name: str, value: Any) -> Sequence[Any]:
    """Returns an item for each sample, of types that JSON can hold."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUS":
        value = value.astype(str) if value.dtype.kind == "S" else value
        return list(value.tolist())
    return [_plain(name, one, 0) for one in value]


_MAX_DEPTH = 40


def _plain(name: str, value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        value = as_array(value)
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_plain(name, one, depth + 1) for one in value]
    if depth < _MAX_DEPTH and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, one, depth + 1) for key, one in value.items()}
    raise ContractError(
        "predict() returned a value that JSON cannot hold",
        setting=name,
        received=type(value).__name__,
        fix="return numbers, texts, lists and mappings of these, or tensors",
    )


def _line(index: int, values: Mapping[str, Any]) -> bytes:
    nonfinite: dict[str, str] = {}
    body = {
        _INDEX: index,
        **{name: _replace_nonfinite(value, name, nonfinite) for name, value in values.items()},
    }
    if nonfinite:  # JSON has neither NaN nor infinity: they are null in the line
        body[_NONFINITE] = nonfinite
    return json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _replace_nonfinite(value: Any, place: str, nonfinite: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite[place] = repr(value)
        return None
    if isinstance(value, list):
        return [_replace_nonfinite(one, f"{place}.{at}", nonfinite) for at, one in enumerate(value)]
    if isinstance(value, dict):
        return {key: _replace_nonfinite(one, f"{place}.{key}", nonfinite) for key, one in value.items()}
    return value
