"""The runs that a query means (`roost.operations.reading.query`), in its order.

A key is, of these the first that there is:

1. a field of `PackageSummary`: ``state`` (or ``status``), ``step``, ``best``, ``seconds`` (``90``, ``1.5h``),
   ``started`` (Unix time, or ``2026-11-21``) …
2. a setting, dotted: ``optimizers.main.lr``; ``*`` stands for one part of it (``optimizers.*.lr``);
3. the end of a setting, if that is clear: ``lr`` means ``optimizers.*.lr``, any optimizer's;
4. a metric: its newest value. With a ``/`` it is looked for before settings.

Of several values one is enough; for ``!=`` all must differ. A run that has no value under a key, or one that
is not a number where numbers are compared, is not meant; when sorting it comes last.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base.errors import UsageError
from roost.operations.reading.package_row import IndexEntry, PackageSummary
from roost.operations.reading.query import Comparison, Key, Query, SortKey, parse, unknown_key_error

_FIELDS = tuple(field.name for field in msgspec.structs.fields(PackageSummary))
_MAX_LISTED = 4
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class FoundPackage(NamedTuple):
    """One package."""

    folder: Path
    name: str
    entry: IndexEntry


_ValueGetter = Callable[[FoundPackage], Sequence[Any]]
"""What a package has under a key."""


def search(packages: Sequence[FoundPackage], text: str) -> list[FoundPackage]:
    """Those that a query means; in the order in which they come, if it says nothing of that.

    Args:
        packages: All.
        text: The query.

    Raises:
        UsageError: It means nothing, or names what no package has.
    """
    query = parse(text)
    values = _value_getters(packages, query)
    found = [
        one for one in packages if all(_matches_text(one.entry.summary, word.text) for word in query.words)
    ]
    for comparison in query.comparisons:
        of, holds = values[comparison.key.name], _predicate(comparison)
        found = [one for one in found if holds(of(one))]
    for order in reversed(query.orders):
        found = _sort(found, values[order.key.name], order)
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

    def looked_up(key: Key) -> _ValueGetter:
        columns: dict[Path, list[ColumnValues]] = {
            folder: [one.column(full) for full in _resolve_key(key, keys)] for folder, one in known.items()
        }
        return lambda one: [value for column in columns[one.folder] for value in column.get(one.name, ())]

    return found | {key.name: looked_up(key) for key in others}


def _field_getter(name: str) -> _ValueGetter:
    def values(one: FoundPackage) -> Sequence[Any]:
        value = getattr(one.entry.summary, name)
        return () if value is None else (value,)

    return values


def _resolve_key(key: Key, keys: set[str]) -> list[str]:
    """The columns that a key means.

    Raises:
        UsageError: None, or settings that have nothing in common.
    """
    from roost.operations.reading.search_index import METRIC_PREFIX, SETTING_PREFIX

    name = key.name
    if "/" in name and METRIC_PREFIX + name in keys:
        return [METRIC_PREFIX + name]
    settings = [one.removeprefix(SETTING_PREFIX) for one in keys if one.startswith(SETTING_PREFIX)]
    meant = [one for one in settings if _matches_pattern(one, name)]
    if not meant:
        meant = sorted(one for one in settings if _matches_end(one, name))
        if len({(one.partition(".")[0], one.count(".")) for one in meant}) > 1:
            several = ", ".join(meant[:_MAX_LISTED]) + (", …" if len(meant) > _MAX_LISTED else "")
            raise UsageError(
                f"character {key.place}: several settings end so: {several}",
                setting="query",
                received=name,
                fix=f"write one of them in full; * stands for one part, as in {_example_pattern(meant[0])}",
            )
    if meant:
        return [SETTING_PREFIX + one for one in meant]
    if METRIC_PREFIX + name in keys:
        return [METRIC_PREFIX + name]
    metrics = [one.removeprefix(METRIC_PREFIX) for one in keys if one.startswith(METRIC_PREFIX)]
    ends = {one.rpartition(".")[2] for one in settings}
    raise unknown_key_error(key, "no run has a field, a setting or a metric of this name",
                      sorted({*_FIELDS, "status", *metrics, *settings, *ends}))  # fmt: skip


def _matches_pattern(name: str, pattern: str) -> bool:
    """Whether a dotted name is this one, in which ``*`` stands for one part."""
    if "*" not in pattern:
        return name == pattern
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        two in ("*", one) for one, two in zip(parts, wanted, strict=True)
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
        assert bound is not None, "parse has refused it"
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


def _sort(found: Sequence[FoundPackage], of: _ValueGetter, order: SortKey) -> list[FoundPackage]:
    """By the least of several values when they ascend, else by the greatest; numbers before texts."""
    keyed: list[tuple[tuple[int, Any], FoundPackage]] = []
    last: list[FoundPackage] = []
    for one in found:
        keys = [key for value in of(one) if (key := _sort_key(value)) is not None]
        if keys:
            keyed.append((max(keys) if order.descending else min(keys), one))
        else:
            last.append(one)
    keyed.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [*(one for _, one in keyed), *last]


def _sort_key(value: Any) -> tuple[int, Any] | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (1, value) if isinstance(value, str) else (0, value)
