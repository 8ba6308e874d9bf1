"""Fixes for settings of the wrong type: an example of a valid value."""

from __future__ import annotations

import collections.abc
import re
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

_NAME = "NAME"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_EXAMPLES: dict[Any, tuple[Any, ...]] = {
    int: (10, 1, 0),
    float: (0.1, 10.0),
    str: (_NAME,),
    bool: (True,),
    Any: (_NAME,),
}
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)


def sweep_values(text: str) -> str | None:
    """Returns the values of a sweep as `roost submit` reads them, if a text is meant as several numbers:
    ``0,1``, ``0..4``, ``0...4`` or ``0-4``; else None."""
    if re.fullmatch(rf"{_NUMBER}(,{_NUMBER})+", text):
        return text
    found = re.fullmatch(r"(\d+) ?(?:\.{2,3}|-|:) ?(\d+)", text)
    return f"{found[1]}..{found[2]}" if found and int(found[1]) < int(found[2]) else None


def suggest_value(kind: Any, default: Any, received: Any, *, key: str = "KEY") -> str | None:
    """Returns a fix with a value that the setting accepts; None if no value of the type is known.

    Args:
        kind: The setting's type.
        default: The setting's default; it is the example unless it is empty.
        received: The value that was given, which is not of the type.
        key: The dotted key, for a command line.
    """
    if isinstance(received, str) and not _fits(received, kind) and (several := sweep_values(received)):
        return f"write one value; several are a sweep: `roost submit CONFIG {key}={several}`"
    if isinstance(received, str) and _fits(received, kind, strict=False):
        return f"write {received} without quotes"
    is_empty = default is NODEFAULT or default in (None, "", [], {}) or isinstance(default, Struct)
    is_number = isinstance(received, int | float) and not isinstance(received, bool)
    if is_empty and is_number and _fits(str(received), kind):
        return f"write it in quotes: {str(received)!r}"
    given = () if is_empty else (default,)
    found = next((one for one in (*given, *_example_values(kind)) if _fits(one, kind)), None)
    return None if found is None else f"write for example {_as_yaml(found)}"


def _example_values(kind: Any) -> Iterator[Any]:
    """Yields example values of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(kind, "__metadata__"):
        yield from _example_values(inner[0])
    elif origin in (Union, types.UnionType):
        for one in inner:
            yield from _example_values(one)
    elif origin is Literal:
        yield from inner
    elif origin is tuple and Ellipsis not in inner:
        firsts = [next(_example_values(one), None) for one in inner]
        yield firsts
    elif origin in (*_LISTS, tuple):
        yield from ([one] for one in _example_values(inner[0]))
    elif origin is dict:
        yield from ({_NAME: one} for one in _example_values(inner[1]))
    else:
        yield from _EXAMPLES.get(kind, ())


def _fits(value: Any, kind: Any, *, strict: bool = True) -> bool:
    try:
        msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, TypeError):  # TypeError for a type that no config can give
        return False
    return True


def _as_yaml(value: Any) -> str:
    """Returns a value as written in a config."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
