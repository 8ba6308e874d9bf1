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
from roost.operations.reading.list_packages import CHANGING, Entry, index_path, save

_FORMAT = 1
_MOST_STALE = 32
"""So many packages are read anew each time, which is quicker than writing all columns."""
_HEAD = struct.Struct("<IQ")
"""The checksum of all that follows, and the length of the header."""
_LARGEST_BYTES = 1 << 32

METRIC, SETTING = "metric ", "setting "
"""So begin the keys."""
Stamp = tuple[int, int]
Values = dict[str, list[Any]]
"""By the package's name. A package that has none is not there."""


class _Place(NamedTuple):
    """Of a column, after the header."""

    offset: int
    length: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    names: list[str]
    stamps: list[Stamp]
    columns: dict[str, _Place]


_Column = tuple[list[int] | None, list[list[Any]]]
"""The positions of the packages among the names (None: all of them), and the values of each."""
_decode = msgspec.msgpack.Decoder(_Column).decode


class Known:
    """The facts of a folder's packages.

    Args:
        folder: That folder.
        entries: Those that are meant, as `list_packages.entries` gives them.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._index = _Index.read(folder)
        known = self._index.stamps if self._index is not None else {}
        stale = [
            name for name, entry in entries.items()
            if known.get(name) != entry.stamp or entry.row.state in CHANGING
        ]  # fmt: skip
        self._fresh = _read(folder, stale)
        lasting = [name for name in stale if entries[name].row.state not in CHANGING]
        if len(lasting) > _MOST_STALE:
            stamps = {name: entries[name].stamp for name in lasting}
            kept = entries.keys() - stamps.keys()
            _write(folder, self._index, kept, stamps, self._fresh)

    @property
    def keys(self) -> set[str]:
        """All that some package has."""
        found = {key for values in self._fresh.values() for key in values}
        return found | (self._index.header.columns.keys() if self._index is not None else set())

    def column(self, key: str) -> Values:
        """What the packages have under a key."""
        old = self._index.column(key) if self._index is not None else {}
        found = {name: values for name, values in old.items() if name in self._entries}
        for name, values in self._fresh.items():
            if key in values:
                found[name] = values[key]
            else:
                found.pop(name, None)
        return found


class _Index:
    """The file of a folder: columns are decoded when they are asked for."""

    def __init__(self, header: _Header, data: memoryview) -> None:
        self.header = header
        self.stamps: dict[str, Stamp] = dict(zip(header.names, header.stamps, strict=True))
        self._data = data

    @classmethod
    def read(cls, folder: Path) -> _Index | None:
        """None where there is none, or none of any use."""
        try:
            data = memoryview(safe_read.read(_path(folder), max_bytes=_LARGEST_BYTES))
            crc, length = _HEAD.unpack_from(data)
            if zlib.crc32(data[_HEAD.size :]) != crc:
                return None
            begin = _HEAD.size + length
            header = msgspec.msgpack.decode(data[_HEAD.size : begin], type=_Header)
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

    def column(self, key: str) -> Values:
        """As `Known.column`."""
        positions, values = self.positions(key)
        names = self.header.names
        found = names if positions is None else [names[at] for at in positions]
        return dict(zip(found, values, strict=True))


def _read(folder: Path, names: Collection[str]) -> dict[str, dict[str, list[Any]]]:
    if not names:
        return {}
    from roost.operations.reading.search_fields import (
        facts,  # 40 ms of imports that known packages do not need
    )

    found: dict[str, dict[str, list[Any]]] = {}
    for name in names:
        settings, metrics = facts(folder / name)
        found[name] = {
            **{SETTING + key: list(values) for key, values in settings.items()},
            **{METRIC + key: [value] for key, value in metrics.items()},
        }
    return found


def _write(
    folder: Path,
    old: _Index | None,
    there: Collection[str],
    stamps: Mapping[str, Stamp],
    fresh: Mapping[str, dict[str, list[Any]]],
) -> None:
    """Column by column, so that never more than one of them is in memory as objects."""
    kept = [(at, name) for at, name in enumerate(old.header.names if old else []) if name in there]
    moved = {before: at for at, (before, _) in enumerate(kept)}
    names = [*(name for _, name in kept), *stamps]
    blobs: list[bytes] = []
    columns: dict[str, _Place] = {}
    offset = 0
    keys = dict.fromkeys(
        [*(old.header.columns if old else []), *(key for name in stamps for key in fresh[name])]
    )
    for key in keys:
        positions, values = [], []
        for at, value in _moved(old, key, moved):
            positions.append(at)
            values.append(value)
        for at, name in enumerate(stamps, len(kept)):
            if key in fresh[name]:
                positions.append(at)
                values.append(fresh[name][key])
        if not positions:
            continue
        blob = msgspec.msgpack.encode((None if len(positions) == len(names) else positions, values))
        columns[key] = _Place(offset, len(blob))
        blobs.append(blob)
        offset += len(blob)
    new = [*((old.stamps[name]) for _, name in kept if old), *stamps.values()]
    try:
        header = msgspec.msgpack.encode(_Header(_FORMAT, os.fspath(folder), names, new, columns))
    except UnicodeEncodeError:
        return  # a name that no text can hold: the next look takes as long
    body = b"".join([header, *blobs])
    save(_path(folder), _HEAD.pack(zlib.crc32(body), len(header)) + body)


def _moved(old: _Index | None, key: str, moved: Mapping[int, int]) -> Iterator[tuple[int, list[Any]]]:
    if old is None:
        return
    positions, values = old.positions(key)
    for before, value in zip(range(len(values)) if positions is None else positions, values, strict=True):
        if before in moved:
            yield moved[before], value


def _path(folder: Path) -> Path:
    return index_path(folder).with_suffix(".facts")
