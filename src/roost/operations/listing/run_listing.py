"""`roost ls`: packages with the columns that distinguish them.

The columns of the list are those that a user named, or else the settings in which the shown packages differ
and the keys of the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.operations.listing.list_packages import find_newest, find_packages, select_newest
from roost.operations.listing.package_row import FoundPackage, PackageSummary
from roost.operations.listing.query import parse, single_key
from roost.operations.listing.search_columns import BUILT_IN_KEYS, FIELDS, SearchColumns

_MAX_VARYING = 6


class RunListing(NamedTuple):
    """Packages in the order of a query."""

    packages: list[FoundPackage]
    columns: dict[str, list[Any]]
    """Further columns by key: a value per package; None where it has none, a list where it has several."""
    hidden: int
    """How many more packages the query selects."""
    known: SearchColumns
    """The settings and metrics of all packages of the folders."""

    def first(self, count: int) -> RunListing:
        """Returns the first packages only."""
        return self._replace(
            packages=self.packages[:count],
            columns={name: values[:count] for name, values in self.columns.items()},
            hidden=self.hidden + max(0, len(self.packages) - count),
        )

    @property
    def rows(self) -> list[PackageSummary]:
        """The summaries of the packages."""
        return [one.entry.summary for one in self.packages]


def list_runs(
    directories: Iterable[Path | str | None],
    query: str = "",
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> RunListing:
    """Returns the packages of some folders that a query selects, with further columns.

    Args:
        directories: As `roost.operations.listing.list_packages.list_packages` takes one.
        query: Selects and sorts the packages.
        columns: Keys as in a query; None: what varies, and what the query names.
        limit: At most so many packages: the first ones of a sorted list, else those that started last. None:
            all.

    Raises:
        NotFound: There is no such folder.
        UsageError: The query is not valid, or no package has one of the keys.
    """
    given = list(directories)
    if limit is not None and len(given) == 1 and not query.strip():
        found, hidden = find_newest(given[0], limit)
        shown = found.selected
    else:
        found = find_packages(given, query)
        is_sorted = bool(parse(query).sort_keys)
        shown = found.selected[:limit] if limit is None or is_sorted else select_newest(found.selected, limit)
        hidden = len(found.selected) - len(shown)
    if columns is None:
        named = [key for key in dict.fromkeys(key.name for key in parse(query).keys) if key not in FIELDS]
        values = {name: read_column(found.columns, name, shown) for name in named} if shown else {}
        columns_by_key = {**values, **_varying(found.columns, shown, excluded=values)}
    else:
        columns_by_key = {name: read_column(found.columns, name, shown) for name in columns}
    return RunListing(shown, columns_by_key, hidden, found.columns)


def complete_rows(listing: RunListing) -> list[dict[str, Any]]:
    """Returns all that is known of each package of a list: the fields of its summary, ``folder``,
    ``settings``, ``metrics``, and the further ``columns`` of the list if there are any."""
    known = listing.known
    settings = {name: known.setting(name) for name in known.settings}
    metrics = {name: known.metric(name) for name in known.metrics}
    rows = []
    for at, one in enumerate(listing.packages):
        row = msgspec.structs.asdict(one.entry.summary) | {"folder": str(one.folder)}
        for kind, getters in (("settings", settings), ("metrics", metrics)):
            row[kind] = {name: join_values(found) for name, get in getters.items() if (found := get(one))}
        if listing.columns:
            row["columns"] = {name: values[at] for name, values in listing.columns.items()}
        rows.append(row)
    return rows


def read_column(columns: SearchColumns, name: str, packages: Sequence[FoundPackage]) -> list[Any]:
    """Returns the values of a key for some packages: None for one without a value, a list for several.

    Raises:
        UsageError: No package has the key, or it is ambiguous.
    """
    get = columns.values(single_key(name))
    return [join_values(get(one)) for one in packages]


def varying_settings(columns: SearchColumns, packages: Sequence[FoundPackage]) -> dict[str, list[Any]]:
    """Returns the settings in which packages differ, by dotted name: those first that most of them have, and
    of these those at the top of the config. Packages without any setting, such as damaged ones, differ from
    none; nor does an imported run by a setting that no imported one has recorded."""
    found = {}
    for name in columns.settings if packages else ():
        if columns.is_constant(name):
            continue
        get = columns.setting(name)
        first = join_values(get(packages[0]))
        if any(not is_same(first, join_values(get(one))) for one in packages):
            found[name] = [join_values(get(one)) for one in packages]
    if bare := _without_settings(columns, packages, found):
        with_settings = [at for at in range(len(packages)) if at not in bare]
        first = with_settings[0]
        found = {
            name: values
            for name, values in found.items()
            if any(not is_same(values[first], values[at]) for at in with_settings)
        }
    if imported := {at for at, one in enumerate(packages) if one.entry.summary.system is not None}:
        found = {name: values for name, values in found.items() if _differs_beside(values, imported)}
    return dict(sorted(found.items(), key=lambda one: (one[1].count(None), one[0].count("."), one[0])))


def _differs_beside(values: Sequence[Any], imported: Collection[int]) -> bool:
    """Whether an imported run has a setting, or others differ in it."""
    others = [value for at, value in enumerate(values) if at not in imported]
    is_recorded = any(values[at] is not None for at in imported)
    return is_recorded or any(not is_same(others[0], one) for one in others)


def _without_settings(
    columns: SearchColumns, packages: Sequence[FoundPackage], varying: dict[str, list[Any]]
) -> frozenset[int]:
    """Returns the places of packages without any setting, which have none of the varying ones."""
    found = set(range(len(packages)) if varying else ())
    for values in varying.values():
        found = {at for at in found if values[at] is None}
    getters = [columns.setting(name) for name in columns.settings] if found else []
    return frozenset(at for at in found if not any(get(packages[at]) for get in getters))


def is_same(one: Any, two: Any) -> bool:
    """Whether two settings are equal: NaN equals itself, 1 and True differ."""
    return type(one) is type(two) and bool(one == two or (one != one and two != two))


def short_names(names: Iterable[str], known: Sequence[str]) -> dict[str, str]:
    """Returns, for dotted names of settings, the shortest end by which a query finds each; ``settings.NAME``
    for one that no query finds, because a built-in key has its name.

    Args:
        names: The names.
        known: The names of all settings of the packages.
    """
    ends: dict[str, int] = {}
    for name in [*known, *BUILT_IN_KEYS]:
        for end in _ends(name):
            ends[end] = ends.get(end, 0) + 1
    return {
        name: next(
            (end for end in _ends(name) if ends.get(end) == 1),
            f"settings.{name}" if name in BUILT_IN_KEYS else name,
        )
        for name in names
    }


def _ends(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1))


def _varying(
    columns: SearchColumns, packages: Sequence[FoundPackage], *, excluded: Iterable[str]
) -> dict[str, list[Any]]:
    if len(packages) < 2:
        return {}
    taken = frozenset(excluded)
    found = varying_settings(columns, packages)
    names = short_names(found, columns.settings)
    shown = [name for name in found if not taken.intersection((name, names[name]))][:_MAX_VARYING]
    return {names[name]: found[name] for name in shown}


def join_values(values: Sequence[Any]) -> Any:
    """Returns the value of a cell: None without one, a list for several."""
    return None if not values else values[0] if len(values) == 1 else list(values)
