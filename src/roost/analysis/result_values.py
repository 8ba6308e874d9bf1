"""Converts the return value of an analysis, of any type, into JSON and files."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import deque
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
import torch

from roost.analysis.analysis_folder import SavedFiles
from roost.train.reporting import array_bytes
from roost.train.reporting.media_files import Media, encode

MAX_INLINE_ELEMENTS = 1024
"""Arrays with more elements are stored as files."""

_MAX_REPR_CHARACTERS = 2000
_MAX_NOTES = 20
_MAX_DEPTH = 40
_INT64_LIMIT = 2**63
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME_CHARACTERS = 100
_Items = list[tuple[Any, Any]]


class JsonResult:
    """A value as JSON.

    Plain values are kept as they are, small arrays and tensors become nested lists. Larger ones become .npy
    files, and pictures image files, both named by their position in the value; any other object becomes its
    repr.

    Args:
        value: The return value.
        files: Receives larger parts.

    Raises:
        OSError: A file cannot be written. No value raises any other error.
    """

    def __init__(self, value: object, files: SavedFiles) -> None:
        self.nonfinite: dict[str, str] = {}
        """NaN and infinities by position: JSON has neither, so the value has null there."""
        self.notes: list[str] = []
        """One line for each part that was converted with a loss."""
        self._files = files
        self._open: set[int] = set()
        self._writing = False
        self.value = self._convert(value, ("value",))
        if len(self.notes) > _MAX_NOTES:
            self.notes[_MAX_NOTES:] = [f"… {len(self.notes) - _MAX_NOTES} more"]

    def _convert(self, value: Any, place: tuple[str, ...]) -> Any:
        try:
            return self._scalar(value, place) if _is_scalar(value) else self._nest(value, place)
        except Exception as error:
            if self._writing:
                raise
            return self._repr(value, place, f" ({_safe_repr(error)})")

    def _scalar(self, value: Any, place: tuple[str, ...]) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            self.nonfinite[".".join(place)] = repr(float(value))
            return None
        if isinstance(value, PurePath):
            return str(value)
        return self._repr(value, place) if isinstance(value, int) and abs(value) >= _INT64_LIMIT else value

    def _nest(self, value: Any, place: tuple[str, ...]) -> Any:
        if isinstance(value, torch.Tensor):
            if not array_bytes.has_numpy_type(value):
                self.notes.append(f"{'.'.join(place)} was {value.dtype}, kept as float32")
            return self._array(array_bytes.as_array(value), place)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(np.asarray(value), place)
        if isinstance(value, Media) or hasattr(type(value), "savefig"):
            return self._file(place, *encode(value))
        items = _items(value)
        if items is None or id(value) in self._open or len(place) > _MAX_DEPTH:
            return self._repr(value, place)
        self._open.add(id(value))
        try:
            return self._mapping(items, place) if _has_named_items(value) else self._list(items, place)
        finally:
            self._open.discard(id(value))

    def _mapping(self, items: _Items, place: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in items:
            name = key if isinstance(key, str) else _safe_repr(key)
            while name in made:  # 1 and "1" are different keys, and JSON has only strings
                name += "'"
            made[name] = self._convert(item, (*place, name))
        return made

    def _list(self, items: _Items, place: tuple[str, ...]) -> list[Any]:
        return [self._convert(item, (*place, str(index))) for index, item in items]

    def _array(self, array: np.ndarray[Any, Any], place: tuple[str, ...]) -> Any:
        if array.dtype.hasobject or (array.ndim == 0 and array.dtype.kind not in "biufU"):
            return self._repr(array[()] if array.ndim == 0 else array, place)
        if array.size <= MAX_INLINE_ELEMENTS and array.dtype.kind in "biufU" and array.dtype != np.longdouble:
            return self._convert(array.tolist(), place)
        described = {"shape": list(array.shape), "dtype": str(array.dtype)}
        return {**self._file(place, "npy", array_bytes.npy_bytes(array)), **described}

    def _file(self, place: tuple[str, ...], suffix: str, data: bytes) -> dict[str, Any]:
        name = _UNSAFE_CHARACTERS.sub("_", ".".join(place))[:_MAX_NAME_CHARACTERS]
        self._writing = True
        path = self._files.write(name, suffix, data)
        self._writing = False
        return {"file": path.name}

    def _repr(self, value: object, place: tuple[str, ...], why: str = "") -> dict[str, str]:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        self.notes.append(f"{'.'.join(place)} is a {kind}, kept as its repr{why}")
        return {"type": kind, "repr": _safe_repr(value)}


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | PurePath)


def _has_named_items(value: object) -> bool:
    return isinstance(value, Mapping | msgspec.Struct) or hasattr(value, "_fields") or _is_dataclass(value)


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _items(value: Any) -> _Items | None:
    """Returns the items of a container by name or number; None if the value is not a container."""
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in value]
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if _is_dataclass(value):
        return [(one.name, getattr(value, one.name)) for one in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, set | frozenset):
        return list(enumerate(sorted(value, key=_safe_repr)))
    return list(enumerate(value)) if isinstance(value, list | tuple | range | deque) else None


def _safe_repr(value: object) -> str:
    try:
        text = repr(value) if not isinstance(value, BaseException) else f"{type(value).__name__}: {value}"
    except Exception as error:  # noqa: BLE001  - a __repr__ of the user may raise anything
        return f"<its repr raises {type(error).__name__}>"
    return text if len(text) <= _MAX_REPR_CHARACTERS else text[:_MAX_REPR_CHARACTERS] + " …"
