"""How a setting of the wrong type is mended: what would be right."""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

_NAME = "NAME"
_EXAMPLES: dict[Any, tuple[Any, ...]] = {
    int: (10, 1, 0),
    float: (0.1, 10.0),
    str: (_NAME,),
    bool: (True,),
    Any: (_NAME,),
}
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)


def suggest_value(kind: Any, default: Any, received: Any) -> str | None:
    """What to write in its place.

    Args:
        kind: The setting's type.
        default: What it is without a word; that is the example if it says something.
        received: What was written, which is none of the type.

    Returns:
        Words; None where no value of the type is known.
    """
    if isinstance(received, str) and _fits(received, kind, strict=False):
        return f"write {received} without quotes"
    says_nothing = default is NODEFAULT or default in (None, "", [], {}) or isinstance(default, Struct)
    is_number = isinstance(received, int | float) and not isinstance(received, bool)
    if says_nothing and is_number and _fits(str(received), kind):
        return f"write it in quotes: {str(received)!r}"
    given = () if says_nothing else (default,)
    found = next((one for one in (*given, *_example_values(kind)) if _fits(one, kind)), None)
    return None if found is None else f"write for example {_as_yaml(found)}"


def _example_values(kind: Any) -> Iterator[Any]:
    """Values that a type may take."""
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
    except (msgspec.ValidationError, TypeError):  # the latter of a type that no config can give
        return False
    return True


def _as_yaml(value: Any) -> str:
    """As in a config."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
