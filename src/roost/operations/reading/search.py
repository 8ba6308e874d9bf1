"""Selects and sorts runs by a query (`roost.operations.reading.query`).

A key is the first of these that exists:

1. a field of `PackageSummary`: ``state`` (or ``status``), ``step``, ``best``, ``seconds`` (``90``, ``1.5h``),
   ``started`` (Unix time, or ``2026-11-21``) …
2. a setting, dotted: ``optimizers.main.lr``; ``*`` matches one part of it (``optimizers.*.lr``);
3. the end of a setting, if that is unambiguous: ``lr`` is ``optimizers.*.lr``, of any optimizer;
4. a metric: its newest value. A key with a ``/`` is searched among metrics before settings.

If a key has several values, one match suffices; for ``!=`` all must differ. A run without a value of the key,
or with one that is not a number where numbers are compared, does not match; in a sorted list it is last.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import UsageError
from roost.operations.reading.package_row import FoundPackage, IndexEntry, PackageSummary
from roost.operations.reading.query import Comparison, Key, Query, SortKey, parse, unknown_key_error

_FIELDS = tuple(field.name for field in msgspec.structs.fields(PackageSummary))
_MAX_LISTED = 4
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_ValueGetter = Callable[[FoundPackage], Sequence[Any]]
"""Returns the values of one key for a package."""


def search(packages: Sequence[FoundPackage], text: str) -> list[FoundPackage]:
    """Returns the packages that match a query, sorted by it; without a sort key in their given order.

    Raises:
        UsageError: The query is not valid, or no package has one of its keys.
    """
    query = parse(text)
    values = _value_getters(packages, query)
    found = [
        one for one in packages if all(_matches_text(one.entry.summary, word.text) for word in query.words)
    ]
    for comparison in query.comparisons:
        get, matches = values[comparison.key.name], _predicate(comparison)
        found = [one for one in found if matches(get(one))]
    for sort_key in reversed(query.sort_keys):
        found = _sort(found, values[sort_key.key.name], sort_key)
    return found


def _matches_text(row: PackageSummary, text: str) -> bool:
    return text in row.name.casefold() or (row.description is not None and text in row.description.casefold())


def _value_getters(packages: Sequence[FoundPackage], query: Query) -> dict[str, _ValueGetter]:
    found: dict[str, _ValueGetter] = {
        key.name: _field_getter(key.name) for key in query.keys if key.name in _FIELDS
    }
    others = [key for key in query.keys if key.name not in found]
    if not others or not packages:
        return found | {key.name: lambda one: () for key in others}
    from roost.operations.reading.search_index import ColumnValues, SearchIndex

    by_folder: dict[Path, dict[str, IndexEntry]] = {}
    for one in packages:
        by_folder.setdefault(one.folder, {})[one.name] = one.entry
    known = {folder: SearchIndex(folder, entries) for folder, entries in by_folder.items()}
    keys = set[str]().union(*(one.keys for one in known.values()))

    def column_getter(key: Key) -> _ValueGetter:
        columns: dict[Path, list[ColumnValues]] = {
            folder: [one.column(full) for full in _resolve_key(key, keys)] for folder, one in known.items()
        }
        return lambda one: [value for column in columns[one.folder] for value in column.get(one.name, ())]

    return found | {key.name: column_getter(key) for key in others}


def _field_getter(name: str) -> _ValueGetter:
    def values(one: FoundPackage) -> Sequence[Any]:
        value = getattr(one.entry.summary, name)
        return () if value is None else (value,)

    return values


def _resolve_key(key: Key, keys: set[str]) -> list[str]:
    """Returns the columns that a key selects.

    Raises:
        UsageError: There is none, or settings of different depths or sections match.
    """
    from roost.operations.reading.search_index import METRIC_PREFIX, SETTING_PREFIX

    name = key.name
    if "/" in name and METRIC_PREFIX + name in keys:
        return [METRIC_PREFIX + name]
    settings = [one.removeprefix(SETTING_PREFIX) for one in keys if one.startswith(SETTING_PREFIX)]
    matches = [one for one in settings if _matches_pattern(one, name)]
    if not matches:
        matches = sorted(one for one in settings if _matches_end(one, name))
        if len({(one.partition(".")[0], one.count(".")) for one in matches}) > 1:
            several = ", ".join(matches[:_MAX_LISTED]) + (", …" if len(matches) > _MAX_LISTED else "")
            raise UsageError(
                f"character {key.position}: several settings end in this: {several}",
                setting="query",
                received=name,
                fix=f"write one of them in full; * matches one part, as in {_example_pattern(matches[0])}",
            )
    if matches:
        return [SETTING_PREFIX + one for one in matches]
    if METRIC_PREFIX + name in keys:
        return [METRIC_PREFIX + name]
    metrics = [one.removeprefix(METRIC_PREFIX) for one in keys if one.startswith(METRIC_PREFIX)]
    ends = {one.rpartition(".")[2] for one in settings}
    raise unknown_key_error(key, "no run has a field, a setting or a metric of this name",
                      sorted({*_FIELDS, "status", *metrics, *settings, *ends}))  # fmt: skip


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


def _predicate(comparison: Comparison) -> Callable[[Sequence[Any]], bool]:
    compare = _COMPARISONS.get(comparison.operator)
    if compare is not None:
        bound = comparison.number
        assert bound is not None, "parse refuses a text here"
        return lambda values: any(_is_number(value) and compare(value, bound) for value in values)
    equals = _equality_predicate(comparison)
    if comparison.operator == "!=":
        return lambda values: bool(values) and not any(map(equals, values))
    return lambda values: any(map(equals, values))


def _equality_predicate(comparison: Comparison) -> Callable[[Any], bool]:
    text, number = comparison.text, comparison.number
    is_part = comparison.operator == ":" and comparison.key.name != "state"
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


def _sort(found: Sequence[FoundPackage], get: _ValueGetter, sort_key: SortKey) -> list[FoundPackage]:
    """Sorts by the least of several values if ascending, else by the greatest; numbers before texts."""
    keyed: list[tuple[tuple[int, Any], FoundPackage]] = []
    last: list[FoundPackage] = []
    for one in found:
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
