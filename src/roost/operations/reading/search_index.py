"""The facts of all packages of a folder, kept by key: a query decodes the two columns that it names, and not
the settings of ten thousand runs.

A cache beside that of `roost.operations.reading.list_packages`, with the same stamps. Whoever removes it
loses time
only; one that is damaged, of an older roost or of another folder is made anew. Two who write at once write
the same.
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
"""So many packages are read anew each time, which is quicker than writing all columns."""
_PREFIX = struct.Struct("<IQ")
"""The checksum of all that follows, and the length of the header."""
_LARGEST_BYTES = 1 << 32

METRIC_PREFIX, SETTING_PREFIX = "metric ", "setting "
"""So begin the keys."""
Stamp = tuple[int, int]
ColumnValues = dict[str, list[Any]]
"""By the package's name. A package that has none is not there."""


class _ColumnPosition(NamedTuple):
    """Of a column, after the header."""

    offset: int
    length: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    names: list[str]
    stamps: list[Stamp]
    columns: dict[str, _ColumnPosition]


_Column = tuple[list[int] | None, list[list[Any]]]
"""The positions of the packages among the names (None: all of them), and the values of each."""
_decode = msgspec.msgpack.Decoder(_Column).decode


class SearchIndex:
    """The facts of a folder's packages.

    Args:
        folder: That folder.
        entries: Those that are meant, as `list_packages.entries` gives them.
    """

    def __init__(self, folder: Path, entries: Mapping[str, IndexEntry]) -> None:
        self._entries = entries
        self._index = _IndexFile.read(folder)
        known = self._index.stamps if self._index is not None else {}
        stale = [
            name for name, entry in entries.items()
            if known.get(name) != entry.stamp or entry.summary.state in CHANGING_STATES
        ]  # fmt: skip
        self._fresh = _read_fields(folder, stale)
        lasting = [name for name in stale if entries[name].summary.state not in CHANGING_STATES]
        if len(lasting) > _MAX_STALE:
            stamps = {name: entries[name].stamp for name in lasting}
            kept = entries.keys() - stamps.keys()
            _write(folder, self._index, kept, stamps, self._fresh)

    @property
    def keys(self) -> set[str]:
        """All that some package has."""
        found = {key for values in self._fresh.values() for key in values}
        return found | (self._index.header.columns.keys() if self._index is not None else set())

    def column(self, key: str) -> ColumnValues:
        """What the packages have under a key."""
        old = self._index.column(key) if self._index is not None else {}
        found = {name: values for name, values in old.items() if name in self._entries}
        for name, values in self._fresh.items():
            if key in values:
                found[name] = values[key]
            else:
                found.pop(name, None)
        return found


class _IndexFile:
    """The file of a folder: columns are decoded when they are asked for."""

    def __init__(self, header: _Header, data: memoryview) -> None:
        self.header = header
        self.stamps: dict[str, Stamp] = dict(zip(header.names, header.stamps, strict=True))
        self._data = data

    @classmethod
    def read(cls, folder: Path) -> _IndexFile | None:
        """None where there is none, or none of any use."""
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
        """A column as it is kept."""
        place = self.header.columns.get(key)
        if place is None:
            return [], []
        found: _Column = _decode(self._data[place.offset : place.offset + place.length])
        return found

    def column(self, key: str) -> ColumnValues:
        """As `SearchIndex.column`."""
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
    there: Collection[str],
    stamps: Mapping[str, Stamp],
    fresh: Mapping[str, dict[str, list[Any]]],
) -> None:
    """Column by column, so that never more than one of them is in memory as objects."""
    kept = [(at, name) for at, name in enumerate(old.header.names if old else []) if name in there]
    moved = {before: at for at, (before, _) in enumerate(kept)}
    names = [*(name for _, name in kept), *stamps]
    blobs: list[bytes] = []
    columns: dict[str, _ColumnPosition] = {}
    offset = 0
    keys = dict.fromkeys(
        [*(old.header.columns if old else []), *(key for name in stamps for key in fresh[name])]
    )
    for key in keys:
        positions, values = [], []
        for at, value in _renumbered(old, key, moved):
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
        return  # a name that no text can hold: the next look takes as long
    body = b"".join([header, *blobs])
    write_cache_file(_index_file(folder), _PREFIX.pack(zlib.crc32(body), len(header)) + body)


def _renumbered(
    old: _IndexFile | None, key: str, moved: Mapping[int, int]
) -> Iterator[tuple[int, list[Any]]]:
    if old is None:
        return
    positions, values = old.positions(key)
    for before, value in zip(range(len(values)) if positions is None else positions, values, strict=True):
        if before in moved:
            yield moved[before], value


def _index_file(folder: Path) -> Path:
    return package_index_path(folder).with_suffix(".facts")
