"""Dotted paths into a batch or the model's output: ``batch.0``, ``output.logits``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.base.text.suggestions import did_you_mean

_MOST_SHOWN = 12
_ABSENT = object()


class SettingLocation(NamedTuple):
    """The setting that names paths, for messages."""

    setting: str
    where: str | None

    def __str__(self) -> str:
        return self.setting if self.where is None else f"{self.setting} ({self.where})"


class BatchPath:
    """A path into a batch or an output.

    Args:
        text: The path as written in the config.
        location: For messages.
    """

    def __init__(self, text: str, location: SettingLocation) -> None:
        self.text, self._location = text, location
        self._root, *self._names = text.split(".")

    def value(self, values: Mapping[str, Any]) -> Any:
        """Returns the value at this path.

        Args:
            values: The batch, output and model by name.

        Raises:
            ContractError: The path does not exist; the message lists what does.
        """
        found = values[self._root]
        if not self._names:
            return found
        # A set without labels gives one tensor for each sample, so its batch is one tensor.
        if self._root == "batch" and self._names == ["0"] and isinstance(found, Tensor):
            return found
        for number, name in enumerate(self._names):
            inner = _inner(found, name)
            if inner is _ABSENT:
                raise self._missing(found, ".".join([self._root, *self._names[:number]]), name)
            found = inner
        return found

    def _missing(self, found: Any, around: str, name: str) -> ContractError:
        names = [str(one) for one in found] if isinstance(found, Mapping) else []
        return ContractError(
            f"there is no {around}.{name}: {around} is {describe_value(found)}",
            setting=self._location.setting,
            received=self.text,
            where=self._location.where,
            fix=f"{did_you_mean(name, names)}name an existing part",
        )


def _inner(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
        return value.get(int(name), _ABSENT) if name.isdecimal() else _ABSENT
    if isinstance(value, Tensor | str):
        return _ABSENT
    if isinstance(value, Sequence) and name.isdecimal():
        return value[int(name)] if int(name) < len(value) else _ABSENT
    return _ABSENT if name.startswith("_") else getattr(value, name, _ABSENT)


def call_with_paths(
    fn: Callable[..., Any], inputs: Sequence[BatchPath], values: Mapping[str, Any], location: SettingLocation
) -> Any:
    """Calls a loss or metric with the values at these paths. An error gets a note that names the setting,
    which a traceback within a library does not show."""
    given = [part.value(values) for part in inputs]
    if torch.compiler.is_compiling():
        return fn(*given)
    try:
        return fn(*given)
    except Exception as error:
        error.add_note(f"in {location}")
        raise


def parse_paths(
    given: str | list[str] | None, default: list[str], location: SettingLocation
) -> list[BatchPath]:
    """Returns the paths of a setting: one, several, or ``default`` if it is left out."""
    texts = default if given is None else [given] if isinstance(given, str) else given
    return [BatchPath(text, location) for text in texts]


def describe_value(value: Any) -> str:
    """Returns a description of a value: ``a list of 2: float32 (64, 8), int64 (64,)``."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{name}: {_kind(one)}" for name, one in list(value.items())[:_MOST_SHOWN])
        return f"a mapping with {inner or 'nothing'}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(map(_kind, value[:_MOST_SHOWN]))}"
    return (
        f"one tensor, {_kind(value)}"
        if isinstance(value, Tensor)
        else f"one value of type {type(value).__name__}"
    )


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return type(value).__name__
