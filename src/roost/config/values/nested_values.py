"""Settings as nested dicts: values by their paths, merged and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Values = dict[str, Any]
Key = tuple[str, ...]
"""The path of a value: the names of the sections around it, and its own."""


class _Absent:
    def __repr__(self) -> str:
        return "(not set)"


ABSENT: Final = _Absent()
"""The value of a key that is not set, in contrast to null."""


def value_at(values: Any, path: Key) -> Any:
    """Returns the value at a path, through sections and, by index, lists; else `ABSENT`."""
    for name in path:
        if isinstance(values, Mapping):
            values = values.get(name, ABSENT)
        elif isinstance(values, list) and name.isdecimal() and int(name) < len(values):
            values = values[int(name)]
        else:
            return ABSENT
    return values


def leaves(values: Mapping[str, Any], path: Key = ()) -> list[Key]:
    """Returns the path of each value that is no section; an empty section counts as a value."""
    found: list[Key] = []
    for name, value in values.items():
        inner = (*path, name)
        found += leaves(value, inner) if isinstance(value, Mapping) and value else [inner]
    return found


def dotted_keys(values: Mapping[str, Any]) -> list[str]:
    """Returns every dotted key: those of the sections, too, each before the keys below it."""
    paths = (path[:length] for path in leaves(values) for length in range(1, len(path) + 1))
    return list(dict.fromkeys(".".join(path) for path in paths))


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> Values:
    """Returns ``low`` merged with ``high``: sections key by key, all other values replaced; does not change
    its arguments."""
    merged = dict(low)
    for name, value in high.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[name] = value
    return merged


def without(values: Mapping[str, Any], path: Key) -> Values:
    """Returns new values without the key at a path, which must exist."""
    rest = {name: value for name, value in values.items() if len(path) > 1 or name != path[0]}
    if len(path) > 1:
        rest[path[0]] = without(values[path[0]], path[1:])
    return rest


def nested(path: Key, value: Any) -> Values:
    """Returns a value as the only one of nested dicts, at a path: ``{a: {b: value}}``."""
    return {path[0]: nested(path[1:], value) if len(path) > 1 else value}


def has_nul(value: Any) -> bool:
    """Whether a text in the value has a NUL, which no path, command or environment can have."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(map(has_nul, value.values()))
    return isinstance(value, list) and any(map(has_nul, value))


# --- comparing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConfigDifference:
    """A dotted key with two values; `ABSENT` where one side does not have it."""

    key: str
    old: Any
    new: Any


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ConfigDifference]:
    """Returns the keys whose values differ, sorted. Numbers are compared as numbers, and nan equals nan.

    If one side has a section and the other a single value, both the section's keys and its name differ.
    """
    before = {".".join(path): value_at(old, path) for path in leaves(old)}
    after = {".".join(path): value_at(new, path) for path in leaves(new)}
    pairs = ((key, before.get(key, ABSENT), after.get(key, ABSENT)) for key in sorted(before | after))
    return [ConfigDifference(key, a, b) for key, a, b in pairs if not _same(a, b)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
