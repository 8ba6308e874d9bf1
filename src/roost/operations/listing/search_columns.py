"""The settings and newest metrics of packages, in columns: from the search indices of their folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from roost.operations.listing import term_match
from roost.operations.listing.package_row import FoundPackage, IndexEntry, PackageSummary
from roost.operations.listing.query import SIZE, Key, unknown_key_error
from roost.operations.listing.search_index import (
    METRIC_PREFIX,
    SETTING_PREFIX,
    SearchIndex,
    ValuesByName,
)

FIELDS = tuple(field.name for field in msgspec.structs.fields(PackageSummary))
"""The fields of a summary, which keys may name."""
BUILT_IN_KEYS = (*FIELDS, SIZE)
"""The keys that are neither a setting nor a metric, also where a setting has the same name."""

ValueGetter = Callable[[FoundPackage], Sequence[Any]]
"""Returns the values of one key for a package; none if the package does not have the key."""


class SearchColumns:
    """The columns of packages in one or several folders.

    Args:
        packages: The packages.
        is_whole: Whether they are all packages of their folders.
    """

    def __init__(self, packages: Sequence[FoundPackage], *, is_whole: bool = True) -> None:
        self._packages = packages
        self._is_whole = is_whole
        self._sizes: dict[Path, int] = {}

    @cached_property
    def _indices(self) -> dict[Path, SearchIndex]:
        entries: dict[Path, dict[str, IndexEntry]] = {}
        for one in self._packages:
            entries.setdefault(one.folder, {})[one.name] = one.entry
        is_whole = self._is_whole
        return {folder: SearchIndex(folder, found, is_whole=is_whole) for folder, found in entries.items()}

    @cached_property
    def _keys(self) -> set[str]:
        return set[str]().union(*(one.keys for one in self._indices.values()))

    @cached_property
    def settings(self) -> list[str]:
        """The dotted names of the settings that at least one package has, sorted."""
        return self._names(SETTING_PREFIX)

    @cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics that at least one package has, sorted."""
        return self._names(METRIC_PREFIX)

    def _names(self, prefix: str) -> list[str]:
        return sorted(key.removeprefix(prefix) for key in self._keys if key.startswith(prefix))

    def setting(self, name: str) -> ValueGetter:
        """Returns the getter of a setting, by its full name."""
        return self._column_getter([SETTING_PREFIX + name])

    def is_constant(self, name: str) -> bool:
        """Whether it is known without reading them that all packages have the same value of a setting, by its
        full name."""
        (index,) = self._indices.values() if len(self._indices) == 1 else (None,)
        return index is not None and index.is_constant(SETTING_PREFIX + name)

    def metric(self, name: str) -> ValueGetter:
        """Returns the getter of the newest value of a metric."""
        return self._column_getter([METRIC_PREFIX + name])

    def values(self, key: Key) -> ValueGetter:
        """Returns the getter of a key of a query: a field, a setting or a metric.

        Raises:
            UsageError: No package has the key, or it is ambiguous.
        """
        if key.name in FIELDS:
            return _field_getter(key.name)
        if key.name == SIZE:
            return self._size
        if not self._packages:
            return lambda one: ()
        return self._column_getter(self._resolve(key))

    def _size(self, package: FoundPackage) -> tuple[int]:
        """Returns the bytes of a package on the disk, which are measured once."""
        from roost.operations.keeping.allocated_bytes import folder_bytes

        path = package.folder / package.name
        if path not in self._sizes:
            self._sizes[path] = folder_bytes(path)
        return (self._sizes[path],)

    def _column_getter(self, keys: Sequence[str]) -> ValueGetter:
        columns: dict[Path, list[ValuesByName]] = {
            folder: [index.values(key) for key in keys] for folder, index in self._indices.items()
        }
        if len(keys) > 1:
            return lambda one: [value for get in columns[one.folder] for value in get(one.name)]
        if len(columns) > 1:
            return lambda one: columns[one.folder][0](one.name)
        ((get,),) = columns.values()
        return lambda one: get(one.name)

    def _resolve(self, key: Key) -> list[str]:
        """Returns the columns that a key selects.

        Raises:
            UsageError: There is none, or settings of different depths or sections match.
        """
        name = key.name
        if "/" in name and name in self.metrics:
            return [METRIC_PREFIX + name]
        matches = term_match.matching_settings(key, self.settings)
        if matches:
            return [SETTING_PREFIX + one for one in matches]
        if name in self.metrics:
            return [METRIC_PREFIX + name]
        ends = {one.rpartition(".")[2] for one in self.settings}
        known = sorted({*BUILT_IN_KEYS, "status", *self.metrics, *self.settings, *ends})
        raise unknown_key_error(key, "no run has a field, a setting or a metric of this name", known)


def _field_getter(name: str) -> ValueGetter:
    def values(one: FoundPackage) -> Sequence[Any]:
        value = getattr(one.entry.summary, name)
        return value if isinstance(value, list) else () if value is None else (value,)

    return values
