"""The search index: the search fields of all packages of a folder, stored as one column per key, so that a
query decodes only the columns that it names, not the settings of ten thousand runs.

It is a cache next to that of `roost.operations.listing.list_packages`, with the same stamps, and can be
removed at any time. An index that is damaged, of an older roost or of another folder is rebuilt. Processes
that write it at the same time write the same content.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from roost.base import safe_read
from roost.operations import work_progress
from roost.operations.cache_folder import package_index_path, write_cache_file
from roost.operations.listing.package_row import CHANGING_STATES, IndexEntry

_FORMAT = 3
_MAX_STALE = 32
"""Up to this number of packages are read each time, which is faster than writing all columns."""
_PREFIX = struct.Struct("<IQ")
"""The checksum of everything after it, and the length of the header."""

METRIC_PREFIX, SETTING_PREFIX = "metric ", "setting "
"""The prefixes of keys: one for metrics, one for settings."""
Stamp = tuple[int, int]
ValuesByName = Callable[[str], Sequence[Any]]
"""Returns the values of one key for the package of a name; none if it does not have the key."""


class _ColumnPosition(NamedTuple):
    """The bytes of a column, after the header."""

    offset: int
    length: int
    is_constant: bool
    """Whether all packages have the same values."""


class _Column(NamedTuple):
    """The values of a key. Most settings have few different values, and a code for each package is decoded
    much faster than a list."""

    different: list[list[Any]]
    """The values of packages, each once."""
    code_type: Literal["B", "H", "I"]
    """The size of a code: 1, 2 or 4 bytes."""
    codes: bytes
    """For each package 0, if it does not have the key, or the place of its values in ``different``, from
    1."""

    def code_list(self) -> memoryview:
        """Returns the codes as numbers."""
        return memoryview(self.codes).cast(self.code_type)


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    names: list[str]
    stamps: list[Stamp]
    columns: dict[str, _ColumnPosition]


_decode = msgspec.msgpack.Decoder(_Column).decode


class SearchIndex:
    """The search fields of the packages of a folder.

    Args:
        folder: The folder.
        entries: The packages to search, from `list_packages.entries`.
        is_whole: Whether they are all packages of the folder; otherwise the index is only read.
    """

    def __init__(self, folder: Path, entries: Mapping[str, IndexEntry], *, is_whole: bool = True) -> None:
        self._entries = entries
        self._index = _IndexFile.read(folder)
        stale = _stale(entries, self._index)
        self._fresh = _read_fields(folder, stale)
        ended = [name for name in stale if entries[name].summary.state not in CHANGING_STATES]
        if len(ended) > _MAX_STALE and is_whole:
            new_stamps = {name: entries[name].stamp for name in ended}
            kept = entries.keys() - new_stamps.keys()
            _write(folder, self._index, kept, new_stamps, self._fresh)

    @property
    def keys(self) -> set[str]:
        """The keys that at least one package has."""
        found = {key for values in self._fresh.values() for key in values}
        return found | (self._index.header.columns.keys() if self._index is not None else set())

    def is_constant(self, key: str) -> bool:
        """Whether the index knows that all packages have the same values of a key."""
        if self._index is None or self._fresh:
            return False
        place = self._index.header.columns.get(key)
        return place is not None and place.is_constant

    def values(self, key: str) -> ValuesByName:
        """Returns the values of a key."""
        fresh = self._fresh
        stored = self._index.values(key) if self._index is not None else _no_values
        return lambda name: fresh[name].get(key, ()) if name in fresh else stored(name)


def _stale(entries: Mapping[str, IndexEntry], index: _IndexFile | None) -> list[str]:
    """Returns the packages whose fields must be read, because the index does not know their present ones."""
    if index is not None and index.is_of(entries):
        return [name for name, entry in entries.items() if entry.summary.state in CHANGING_STATES]
    stamps = index.stamps if index is not None else {}
    return [
        name for name, entry in entries.items()
        if stamps.get(name) != entry.stamp or entry.summary.state in CHANGING_STATES
    ]  # fmt: skip


def _no_values(name: str) -> Sequence[Any]:
    return ()


class _IndexFile:
    """The index file of a folder. A column is decoded when it is read."""

    def __init__(self, header: _Header, data: memoryview) -> None:
        self.header = header
        self._data = data

    @classmethod
    def read(cls, folder: Path) -> _IndexFile | None:
        """Reads the index of a folder; returns None if there is none, or none that is valid."""
        try:
            with open(safe_read.open_fd(_index_file(folder)), "rb", buffering=0) as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            crc, length = _PREFIX.unpack_from(data)
            if zlib.crc32(data[_PREFIX.size :]) != crc:
                return None
            begin = _PREFIX.size + length
            header = msgspec.msgpack.decode(data[_PREFIX.size : begin], type=_Header)
        except (OSError, ValueError, struct.error):
            return None
        is_ours = header.format == _FORMAT and header.folder == os.fspath(folder)
        return cls(header, data[begin:]) if is_ours else None

    @cached_property
    def stamps(self) -> dict[str, Stamp]:
        """The stamps of the packages when their fields were read."""
        return dict(zip(self.header.names, self.header.stamps, strict=True))

    def is_of(self, entries: Mapping[str, IndexEntry]) -> bool:
        """Whether the index has just these packages, in this order and with these stamps."""
        stamps = [entry.stamp for entry in entries.values()]
        return self.header.stamps == stamps and self.header.names == [*entries]

    def column(self, key: str) -> _Column | None:
        """Returns the column of a key; None if no package has it."""
        place = self.header.columns.get(key)
        return None if place is None else _decode(self._data[place.offset : place.offset + place.length])

    def values(self, key: str) -> ValuesByName:
        """Returns the values of a key."""
        column = self.column(key)
        if column is None:
            return _no_values
        values, codes, positions = [(), *column.different], column.code_list(), self._positions

        def find(name: str) -> Sequence[Any]:
            at = positions.get(name)
            return values[codes[at]] if at is not None else ()

        return find

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.header.names)}


def _read_fields(folder: Path, names: Collection[str]) -> dict[str, dict[str, list[Any]]]:
    if not names:
        return {}
    from roost.operations.listing.search_fields import (
        read_search_fields,  # 40 ms of imports that known packages do not need
    )

    found: dict[str, dict[str, list[Any]]] = {}
    for name in work_progress.track(names, "reading settings and metrics"):
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
    kept = [name for name in (old.header.names if old else []) if name in kept_names]
    names = [*kept, *stamps]
    blobs: list[bytes] = []
    columns: dict[str, _ColumnPosition] = {}
    offset = 0
    keys = dict.fromkeys(
        [*(old.header.columns if old else []), *(key for name in stamps for key in fresh[name])]
    )
    for key in keys:
        before = old.values(key) if old is not None else _no_values
        values = [before(name) for name in kept] + [fresh[name].get(key, ()) for name in stamps]
        column = _encode_column(values)
        if not column.different:
            continue
        blob = msgspec.msgpack.encode(column)
        is_constant = len(column.different) == 1 and 0 not in column.code_list()
        columns[key] = _ColumnPosition(offset, len(blob), is_constant)
        blobs.append(blob)
        offset += len(blob)
    new = [*(old.stamps[name] for name in kept if old), *stamps.values()]
    try:
        header = msgspec.msgpack.encode(_Header(_FORMAT, os.fspath(folder), names, new, columns))
    except UnicodeEncodeError:
        return  # a name that cannot be encoded: the next query takes as long
    body = b"".join([header, *blobs])
    write_cache_file(_index_file(folder), _PREFIX.pack(zlib.crc32(body), len(header)) + body)


def _encode_column(values: Sequence[Sequence[Any]]) -> _Column:
    codes: dict[bytes, int] = {}
    different: list[list[Any]] = []
    found = array("I")
    for one in values:
        if not one:
            found.append(0)
            continue
        # Compared as bytes: 1 and True are equal to Python, and NaN is not equal to itself.
        encoded = msgspec.msgpack.encode(one)
        if (code := codes.get(encoded)) is None:
            different.append(list(one))
            code = codes[encoded] = len(different)
        found.append(code)
    code_type: Literal["B", "H", "I"] = (
        "B" if len(different) < 1 << 8 else "H" if len(different) < 1 << 16 else "I"
    )
    return _Column(different, code_type, array(code_type, found).tobytes())


def _index_file(folder: Path) -> Path:
    return package_index_path(folder).with_suffix(".facts")
