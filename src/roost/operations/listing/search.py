"""Selects and sorts runs by a query (`roost.operations.listing.query`).

A key is the first of these that exists:

1. a field of `PackageSummary`: ``state`` (or ``status``), ``step``, ``best``, ``seconds`` (``90``, ``1.5h``),
   ``started`` (Unix time, or ``2026-11-21``), ``tag``, ``note``, ``starred`` (``true``, ``false``) …; or
   ``size``, the place on the disk (``1e9``, ``1.5GB``), for which packages are measured;
2. a setting, dotted: ``optimizers.main.lr``; ``*`` matches one part of it (``optimizers.*.lr``);
3. the end of a setting, if that is unambiguous: ``lr`` is ``optimizers.*.lr``, of any optimizer;
4. a metric: its newest value. A key with a ``/`` is searched among metrics before settings.

If a key has several values, one match suffices; for ``!=`` all must differ. A run without a value of the key,
or with one that is not a number where numbers are compared, does not match, except one without tags
``tag!=NAME``; in a sorted list it is last.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from roost.operations import work_progress
from roost.operations.listing.package_row import FoundPackage, PackageSummary
from roost.operations.listing.query import SIZE, Comparison, Key, SortKey, parse
from roost.operations.listing.search_columns import SearchColumns, ValueGetter

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WHOLE_WORDS = ("state", "tags")
"""Keys whose values ``:`` compares as a whole: ``tag:base`` does not select ``baseline``."""


def search(
    packages: Sequence[FoundPackage], text: str, columns: SearchColumns | None = None
) -> list[FoundPackage]:
    """Returns the packages that match a query, sorted by it; without a sort key in their given order.

    Args:
        packages: All packages of their folders.
        text: The query.
        columns: Their columns; None: they are read here.

    Raises:
        UsageError: The query is not valid, or no package has one of its keys.
    """
    query = parse(text)
    columns = columns if columns is not None else SearchColumns(packages)
    values = {key.name: columns.values(key) for key in query.keys}
    found = [
        one for one in packages if all(_matches_text(one.entry.summary, word.text) for word in query.words)
    ]
    for comparison in query.comparisons:
        get, matches = values[comparison.key.name], _predicate(comparison)
        found = [one for one in _track(found, comparison.key) if matches(get(one))]
    for sort_key in reversed(query.sort_keys):
        found = _sort(found, values[sort_key.key.name], sort_key)
    return found


def _track(packages: Sequence[FoundPackage], key: Key) -> Iterable[FoundPackage]:
    """Returns the packages, with a report of the progress if their values of a key must be measured."""
    return work_progress.track(packages, "measuring") if key.name == SIZE else packages


def _matches_text(row: PackageSummary, text: str) -> bool:
    return text in row.name.casefold() or (row.description is not None and text in row.description.casefold())


def _predicate(comparison: Comparison) -> Callable[[Sequence[Any]], bool]:
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


def _sort(found: Sequence[FoundPackage], get: ValueGetter, sort_key: SortKey) -> list[FoundPackage]:
    """Sorts by the least of several values if ascending, else by the greatest; numbers before texts."""
    keyed: list[tuple[tuple[int, Any], FoundPackage]] = []
    last: list[FoundPackage] = []
    for one in _track(found, sort_key.key):
        keys = [key for value in get(one) if (key := _sort_key(value)) is not None]
        if keys:
            keyed.append((max(keys) if sort_key.descending else min(keys), one))
        else:
            last.append(one)
    keyed.sort(key=lambda pair: pair[0], reverse=sort_key.descending)
    return [*(one for _, one in keyed), *last]


def _sort_key(value: Any) -> tuple[int, Any] | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (1, value) if isinstance(value, str) else (0, value)
