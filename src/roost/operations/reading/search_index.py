"""The search index: the search fields of all packages of a folder, stored as one column per key, so that a
query decodes only the columns that it names, not the settings of ten thousand runs.

It is a cache next to that of `roost.operations.reading.list_packages`, with the same stamps, and can be
removed at any time. An index that is damaged, of an older roost or of another folder is rebuilt. Processes
that write it at the same time write the same content.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import safe_read
from roost.operations.cache_folder import package_index_path, write_cache_file
from roost.operations.reading.package_row import CHANGING_STATES, IndexEntry

_FORMAT = 1
_MAX_STALE = 32
"""Up to this number of packages are read each time, which is faster than writing all columns."""
_PREFIX = struct.Struct("<IQ")
"""The checksum of everything after it, and the length of the header."""
_LARGEST_BYTES = 1 << 32

METRIC_PREFIX, SETTING_PREFIX = "metric ", "setting "
"""The prefixes of keys: one for metrics, one for settings."""
Stamp = tuple[int, int]
ColumnValues = dict[str, list[Any]]
"""Values by the name of the package. A package without a value is missing."""


class _ColumnPosition(NamedTuple):
    """The bytes of a column, after the header."""

    offset: int
    length: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    names: list[str]
    stamps: list[Stamp]
    columns: dict[str, _ColumnPosition]


_Column = tuple[list[int] | None, list[list[Any]]]
"""The positions of packages in the list of names (None: all packages), and the values of each."""
_decode = msgspec.msgpack.Decoder(_Column).decode


class SearchIndex:
    """The search fields of the packages of a folder.

    Args:
        folder: The folder.
        entries: The packages to search, from `list_packages.entries`.
    """

    def __init__(self, folder: Path, entries: Mapping[str, IndexEntry]) -> None:
        self._entries = entries
        self._index = _IndexFile.read(folder)
        stamps = self._index.stamps if self._index is not None else {}
        stale = [
            name for name, entry in entries.items()
            if stamps.get(name) != entry.stamp or entry.summary.state in CHANGING_STATES
        ]  # fmt: skip
        self._fresh = _read_fields(folder, stale)
        ended = [name for name in stale if entries[name].summary.state not in CHANGING_STATES]
        if len(ended) > _MAX_STALE:
            new_stamps = {name: entries[name].stamp for name in ended}
            kept = entries.keys() - new_stamps.keys()
            _write(folder, self._index, kept, new_stamps, self._fresh)

    @property
    def keys(self) -> set[str]:
        """The keys that at least one package has."""
        found = {key for values in self._fresh.values() for key in values}
        return found | (self._index.header.columns.keys() if self._index is not None else set())

    def column(self, key: str) -> ColumnValues:
        """Returns the values of a key."""
        old = self._index.column(key) if self._index is not None else {}
        found = {name: values for name, values in old.items() if name in self._entries}
        for name, values in self._fresh.items():
            if key in values:
                found[name] = values[key]
            else:
                found.pop(name, None)
        return found


class _IndexFile:
    """The index file of a folder. A column is decoded when it is read."""

    def __init__(self, header: _Header, data: memoryview) -> None:
        self.header = header
        self.stamps: dict[str, Stamp] = dict(zip(header.names, header.stamps, strict=True))
        self._data = data

    @classmethod
    def read(cls, folder: Path) -> _IndexFile | None:
        """Reads the index of a folder; returns None if there is none, or none that is valid."""
        try:
            data = memoryview(safe_read.read(_index_file(folder), max_bytes=_LARGEST_BYTES))
            crc, length = _PREFIX.unpack_from(data)
            if zlib.crc32(data[_PREFIX.size :]) != crc:
                return None
            begin = _PREFIX.size + length
            header = msgspec.msgpack.decode(data[_PREFIX.size : begin], type=_Header)
        except (OSError, ValueError, struct.error):
            return None
        is_ours = header.format == _FORMAT and header.folder == os.fspath(folder)
        return cls(header, data[begin:]) if is_ours else None

    def positions(self, key: str) -> _Column:
        """Returns a column as it is stored."""
        place = self.header.columns.get(key)
        if place is None:
            return [], []
        found: _Column = _decode(self._data[place.offset : place.offset + place.length])
        return found

    def column(self, key: str) -> ColumnValues:
        """Returns a column as values by name."""
        positions, values = self.positions(key)
        names = self.header.names
        found = names if positions is None else [names[at] for at in positions]
        return dict(zip(found, values, strict=True))


def _read_fields(folder: Path, names: Collection[str]) -> dict[str, dict[str, list[Any]]]:
    if not names:
        return {}
    from roost.operations.reading.search_fields import (
        read_search_fields,  # 40 ms of imports that known packages do not need
    )

    found: dict[str, dict[str, list[Any]]] = {}
    for name in names:
        settings, metrics = read_search_fields(folder / name)
        found[name] = {
            **{SETTING_PREFIX + key: list(values) for key, values in settings.items()},
            **{METRIC_PREFIX + key: [value] for key, value in metrics.items()},
        }
    return found


def _write(
    folder: Path,
    old: _IndexFile | None,
    kept_names: Collection[str],
    stamps: Mapping[str, Stamp],
    fresh: Mapping[str, dict[str, list[Any]]],
) -> None:
    """Writes column by column, so that at most one of them is in memory as objects."""
    kept = [(at, name) for at, name in enumerate(old.header.names if old else []) if name in kept_names]
    new_positions = {before: at for at, (before, _) in enumerate(kept)}
    names = [*(name for _, name in kept), *stamps]
    blobs: list[bytes] = []
    columns: dict[str, _ColumnPosition] = {}
    offset = 0
    keys = dict.fromkeys(
        [*(old.header.columns if old else []), *(key for name in stamps for key in fresh[name])]
    )
    for key in keys:
        positions, values = [], []
        for at, value in _renumbered(old, key, new_positions):
            positions.append(at)
            values.append(value)
        for at, name in enumerate(stamps, len(kept)):
            if key in fresh[name]:
                positions.append(at)
                values.append(fresh[name][key])
        if not positions:
            continue
        blob = msgspec.msgpack.encode((None if len(positions) == len(names) else positions, values))
        columns[key] = _ColumnPosition(offset, len(blob))
        blobs.append(blob)
        offset += len(blob)
    new = [*((old.stamps[name]) for _, name in kept if old), *stamps.values()]
    try:
        header = msgspec.msgpack.encode(_Header(_FORMAT, os.fspath(folder), names, new, columns))
    except UnicodeEncodeError:
        return  # a name that cannot be encoded: the next query takes as long
    body = b"".join([header, *blobs])
    write_cache_file(_index_file(folder), _PREFIX.pack(zlib.crc32(body), len(header)) + body)


def _renumbered(
    old: _IndexFile | None, key: str, new_positions: Mapping[int, int]
) -> Iterator[tuple[int, list[Any]]]:
    """Yields the entries of an old column whose packages are kept, with their new positions."""
    if old is None:
        return
    positions, values = old.positions(key)
    for before, value in zip(range(len(values)) if positions is None else positions, values, strict=True):
        if before in new_positions:
            yield new_positions[before], value


def _index_file(folder: Path) -> Path:
    return package_index_path(folder).with_suffix(".facts")
