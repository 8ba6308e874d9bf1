"""Whether values match a term of a query, and their order: the same for runs and for tasks."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from roost.operations.listing.query import Comparison, Key

T = TypeVar("T")

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WHOLE_WORDS = ("state", "tags")
"""Keys whose values ``:`` compares as a whole: ``tag:base`` does not select ``baseline``."""
_MAX_LISTED = 4


def predicate(comparison: Comparison) -> Callable[[Sequence[Any]], bool]:
    """Returns whether the values of a key match a comparison; for a key with several values one match
    suffices, for ``!=`` all must differ."""
    compare = _COMPARISONS.get(comparison.operator)
    if compare is not None:
        bound = comparison.number
        assert bound is not None, "parse refuses a text here"
        return lambda values: any(_is_number(value) and compare(value, bound) for value in values)
    equals = _equality_predicate(comparison)
    if comparison.operator == "!=":
        may_lack = comparison.key.name == "tags"  # a package without tags does not have this one either
        return lambda values: (bool(values) or may_lack) and not any(map(equals, values))
    return lambda values: any(map(equals, values))


def _equality_predicate(comparison: Comparison) -> Callable[[Any], bool]:
    text, number = comparison.text, comparison.number
    is_part = comparison.operator == ":" and comparison.key.name not in _WHOLE_WORDS
    folded = text.casefold()

    def equals(value: Any) -> bool:
        if isinstance(value, str):
            return folded in value.casefold() if is_part else value == text
        if _is_number(value):
            return number is not None and (value == number or (math.isnan(value) and math.isnan(number)))
        return json.dumps(value) == folded

    return equals


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def sort_by(found: Iterable[T], get: Callable[[T], Sequence[Any]], *, descending: bool) -> list[T]:
    """Sorts by the least of several values if ascending, else by the greatest; numbers before texts, what has
    no value last."""
    keyed: list[tuple[tuple[int, Any], T]] = []
    last: list[T] = []
    for one in found:
        keys = [key for value in get(one) if (key := _sort_key(value)) is not None]
        if keys:
            keyed.append((max(keys) if descending else min(keys), one))
        else:
            last.append(one)
    keyed.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(one for _, one in keyed), *last]


def _sort_key(value: Any) -> tuple[int, Any] | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (1, value) if isinstance(value, str) else (0, value)


def matching_settings(key: Key, names: Sequence[str]) -> list[str]:
    """Returns the settings, of these dotted names, that a key selects: by the full name, in which ``*``
    matches one part, or by the end of one.

    Raises:
        UsageError: Settings of different depths or sections end in it.
    """
    matches = [one for one in names if _matches_pattern(one, key.name)]
    if matches:
        return matches
    matches = [one for one in names if _matches_end(one, key.name)]
    if len({(one.partition(".")[0], one.count(".")) for one in matches}) > 1:
        several = ", ".join(matches[:_MAX_LISTED]) + (", …" if len(matches) > _MAX_LISTED else "")
        pattern = _example_pattern(matches[0])
        raise key.error(
            f"several settings end in this: {several}",
            f"write one of them in full; * matches one part, as in {pattern}",
        )
    return matches


def _matches_pattern(name: str, pattern: str) -> bool:
    """Whether a dotted name matches a pattern, in which ``*`` matches one part."""
    if "*" not in pattern:
        return name == pattern
    parts, expected = name.split("."), pattern.split(".")
    return len(parts) == len(expected) and all(
        two in ("*", one) for one, two in zip(parts, expected, strict=True)
    )


def _matches_end(name: str, pattern: str) -> bool:
    count = pattern.count(".") + 1
    parts = name.split(".")
    return len(parts) > count and _matches_pattern(".".join(parts[-count:]), pattern)


def _example_pattern(name: str) -> str:
    first, _, rest = name.partition(".")
    inner, _, last = rest.rpartition(".")
    return ".".join([first, *("*" for _ in inner.split(".") if inner), last])
