"""The runs that a query means (`roost.operations.reading.query`), in its order.

A key is, of these the first that there is:

1. a field of `Row`: ``state`` (or ``status``), ``step``, ``best``, ``seconds`` (``90``, ``1.5h``),
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
from roost.operations.reading.list_packages import Entry
from roost.operations.reading.package_row import Row
from roost.operations.reading.query import Comparison, Key, Order, Query, parse, unknown_key

_FIELDS = tuple(field.name for field in msgspec.structs.fields(Row))
_MOST_NAMED = 4
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Found(NamedTuple):
    """One package."""

    folder: Path
    name: str
    entry: Entry


_Values = Callable[[Found], Sequence[Any]]
"""What a package has under a key."""


def search(packages: Sequence[Found], text: str) -> list[Found]:
    """Those that a query means; in the order in which they come, if it says nothing of that.

    Args:
        packages: All.
        text: The query.

    Raises:
        UsageError: It means nothing, or names what no package has.
    """
    query = parse(text)
    values = _values(packages, query)
    found = [one for one in packages if all(_has(one.entry.row, word.text) for word in query.words)]
    for comparison in query.comparisons:
        of, holds = values[comparison.key.name], _test(comparison)
        found = [one for one in found if holds(of(one))]
    for order in reversed(query.orders):
        found = _sorted(found, values[order.key.name], order)
    return found


def _has(row: Row, text: str) -> bool:
    return text in row.name.casefold() or (row.description is not None and text in row.description.casefold())


def _values(packages: Sequence[Found], query: Query) -> dict[str, _Values]:
    found: dict[str, _Values] = {key.name: _field(key.name) for key in query.keys if key.name in _FIELDS}
    others = [key for key in query.keys if key.name not in found]
    if not others or not packages:
        return found | {key.name: lambda one: () for key in others}
    from roost.operations.reading.search_index import Known, Values

    by_folder: dict[Path, dict[str, Entry]] = {}
    for one in packages:
        by_folder.setdefault(one.folder, {})[one.name] = one.entry
    known = {folder: Known(folder, entries) for folder, entries in by_folder.items()}
    keys = set[str]().union(*(one.keys for one in known.values()))

    def looked_up(key: Key) -> _Values:
        columns: dict[Path, list[Values]] = {
            folder: [one.column(full) for full in _resolved(key, keys)] for folder, one in known.items()
        }
        return lambda one: [value for column in columns[one.folder] for value in column.get(one.name, ())]

    return found | {key.name: looked_up(key) for key in others}


def _field(name: str) -> _Values:
    def values(one: Found) -> Sequence[Any]:
        value = getattr(one.entry.row, name)
        return () if value is None else (value,)

    return values


def _resolved(key: Key, keys: set[str]) -> list[str]:
    """The columns that a key means.

    Raises:
        UsageError: None, or settings that have nothing in common.
    """
    from roost.operations.reading.search_index import METRIC, SETTING

    name = key.name
    if "/" in name and METRIC + name in keys:
        return [METRIC + name]
    settings = [one.removeprefix(SETTING) for one in keys if one.startswith(SETTING)]
    meant = [one for one in settings if _fits(one, name)]
    if not meant:
        meant = sorted(one for one in settings if _ends(one, name))
        if len({(one.partition(".")[0], one.count(".")) for one in meant}) > 1:
            several = ", ".join(meant[:_MOST_NAMED]) + (", …" if len(meant) > _MOST_NAMED else "")
            raise UsageError(
                f"character {key.place}: several settings end so: {several}",
                setting="query",
                received=name,
                fix=f"write one of them in full; * stands for one part, as in {_pattern(meant[0])}",
            )
    if meant:
        return [SETTING + one for one in meant]
    if METRIC + name in keys:
        return [METRIC + name]
    metrics = [one.removeprefix(METRIC) for one in keys if one.startswith(METRIC)]
    ends = {one.rpartition(".")[2] for one in settings}
    raise unknown_key(key, "no run has a field, a setting or a metric of this name",
                      sorted({*_FIELDS, "status", *metrics, *settings, *ends}))  # fmt: skip


def _fits(name: str, pattern: str) -> bool:
    """Whether a dotted name is this one, in which ``*`` stands for one part."""
    if "*" not in pattern:
        return name == pattern
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        two in ("*", one) for one, two in zip(parts, wanted, strict=True)
    )


def _ends(name: str, pattern: str) -> bool:
    count = pattern.count(".") + 1
    parts = name.split(".")
    return len(parts) > count and _fits(".".join(parts[-count:]), pattern)


def _pattern(name: str) -> str:
    first, _, rest = name.partition(".")
    inner, _, last = rest.rpartition(".")
    return ".".join([first, *("*" for _ in inner.split(".") if inner), last])


def _test(comparison: Comparison) -> Callable[[Sequence[Any]], bool]:
    compare = _COMPARED.get(comparison.operator)
    if compare is not None:
        bound = comparison.number
        assert bound is not None, "parse has refused it"
        return lambda values: any(_is_number(value) and compare(value, bound) for value in values)
    equals = _equality(comparison)
    if comparison.operator == "!=":
        return lambda values: bool(values) and not any(map(equals, values))
    return lambda values: any(map(equals, values))


def _equality(comparison: Comparison) -> Callable[[Any], bool]:
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


def _sorted(found: Sequence[Found], of: _Values, order: Order) -> list[Found]:
    """By the least of several values when they ascend, else by the greatest; numbers before texts."""
    keyed: list[tuple[tuple[int, Any], Found]] = []
    last: list[Found] = []
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
