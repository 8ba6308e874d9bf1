"""Dotted parts of a batch and of what the model made of it: ``batch.0``, ``output.logits``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.base.text.suggestions import did_you_mean

_MOST_SHOWN = 12
_ABSENT = object()


class Place(NamedTuple):
    """The setting that names parts, for messages."""

    setting: str
    where: str | None

    def __str__(self) -> str:
        return self.setting if self.where is None else f"{self.setting} ({self.where})"


class Part:
    """One of them.

    Args:
        text: As the config has it.
        place: For messages.
    """

    def __init__(self, text: str, place: Place) -> None:
        self.text, self._place = text, place
        self._root, *self._names = text.split(".")

    def of(self, values: Mapping[str, Any]) -> Any:
        """What it is in these values, by root.

        Raises:
            ContractError: It is not there; tells what is.
        """
        found = values[self._root]
        if not self._names:
            return found
        # A set without labels gives one tensor a sample, and a batch of them is one tensor.
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
            f"there is no {around}.{name}: {around} is {described(found)}",
            setting=self._place.setting,
            received=self.text,
            where=self._place.where,
            fix=f"{did_you_mean(name, names)}name a part that is there",
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


def called(fn: Callable[..., Any], inputs: Sequence[Part], values: Mapping[str, Any], place: Place) -> Any:
    """What a loss or metric gives for these inputs. An error gets a note of the setting: in a library's own
    lines nothing tells which of them it was."""
    given = [part.of(values) for part in inputs]
    if torch.compiler.is_compiling():
        return fn(*given)
    try:
        return fn(*given)
    except Exception as error:
        error.add_note(f"in {place}")
        raise


def parts(given: str | list[str] | None, default: list[str], place: Place) -> list[Part]:
    """The parts that a setting names: one, several, or those of ``default`` if it is left out."""
    texts = default if given is None else [given] if isinstance(given, str) else given
    return [Part(text, place) for text in texts]


def described(value: Any) -> str:
    """What a value is, in words: ``a list of 2: float32 (64, 8), int64 (64,)``."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{name}: {_kind(one)}" for name, one in list(value.items())[:_MOST_SHOWN])
        return f"a mapping with {inner or 'nothing'}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(map(_kind, value[:_MOST_SHOWN]))}"
    return f"one tensor, {_kind(value)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return type(value).__name__
