"""What a run can be found by beside its row: its settings, and the newest value of each metric."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import safe_read
from roost.base.errors import CheckpointError, RoostError
from roost.operations.reading import package_schema
from roost.package import records
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder

Setting = str | float | int | bool | None
_WHOLE_BYTES = 1 << 18
"""A records file up to this size is read whole."""
_PART_BYTES = _WHOLE_BYTES // 2
_SESSION_HEADER = b'"start_step":'


class SearchFields(NamedTuple):
    """Of one run."""

    settings: dict[str, list[Setting]]
    """Those in effect, dotted; the elements of a list have one name."""
    metrics: dict[str, float]
    """The newest value of each."""


def read_search_fields(path: Path) -> SearchFields:
    """Of the package in a folder; what cannot be read is left out.

    Of a session that wrote much, the metrics are those at its beginning, those near its end and those in its
    checkpoints; their values are the newest there are.
    """
    settings: dict[str, list[Setting]] = {}
    with suppress(RoostError, OSError):
        for name, value in flatten(package_schema.settings(PackageFolder(path))):
            settings.setdefault(name, []).append(value)
    with suppress(OSError):
        return SearchFields(settings, newest_metrics(path))
    return SearchFields(settings, {})


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Each single value in a nest of settings, with its dotted name."""
    for key, value in values.items():
        yield from _flatten_value(f"{prefix}{key}", value)


def _flatten_value(name: str, value: Any) -> Iterator[tuple[str, Setting]]:
    if isinstance(value, Mapping):
        yield from flatten(value, f"{name}.")
    elif isinstance(value, list):
        for one in value:
            yield from _flatten_value(name, one)
    else:
        yield name, value


def newest_metrics(path: Path) -> dict[str, float]:
    """The newest value of every metric of a package.

    Raises:
        OSError: Its records cannot be read.
    """
    folder = path / "records"
    if not folder.is_dir():
        return {}
    found = {int(one.stem): one for one in folder.glob("*.jsonl") if one.stem.isdecimal()}
    if sum(one.stat().st_size for one in found.values()) <= _WHOLE_BYTES:
        return records.fold(folder).last()
    values: dict[str, float] = {}
    before = math.inf
    saved = _checkpoint_metrics(path)
    for number, file in sorted(found.items(), reverse=True):
        with open(safe_read.open_fd(file), "rb", buffering=0) as opened:
            seen = _RecordsSearch(opened.fileno())
            if not seen.has_begun:
                continue
            for name in (seen.names() | saved) - values.keys():
                if (value := seen.newest(name, before)) is not None:
                    values[name] = value
            if number > min(found):
                before = min(before, seen.start())
    return values


def _checkpoint_metrics(path: Path) -> set[str]:
    """The metrics that the checkpoints tell of: what was validated long ago stands in no row near the end."""
    with suppress(OSError, CheckpointError):
        return {name for info in checkpoint.read_manifests(path / "Checkpoints") for name in info.metrics}
    return set()


class _RecordsSearch:
    """A long records file, read from its end as far back as what is looked for lies.

    Args:
        fd: Of the file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._from = os.fstat(fd).st_size
        self._data = b""
        self._head = os.pread(fd, _PART_BYTES, 0)
        self._further()

    @property
    def has_begun(self) -> bool:
        """Whether it says where the session went on from; what has no such line does not count."""
        return _SESSION_HEADER in self._head

    def _further(self) -> bool:
        """Reads twice as much as before; says whether there was anything left."""
        length = min(self._from, max(_PART_BYTES, len(self._data)))
        self._from -= length
        self._data = os.pread(self._fd, length, self._from) + self._data
        return length > 0

    def start(self) -> int:
        """The first step after which the session recorded."""
        while self._further():
            pass
        return min(step for _, step in self._headers(0))

    def names(self) -> set[str]:
        """Of the metrics near its beginning and its end."""
        pieces = [self._head, self._data[-_PART_BYTES:]]
        rows = (records.decode_row(line) for piece in pieces for line in piece.split(b"\n"))
        return {name for row in rows for name in records.metrics(row)}

    def newest(self, name: str, before: float) -> float | None:
        """The newest value that still counts.

        Args:
            name: The metric.
            before: What is recorded after this step, a later session has replaced.
        """
        key = msgspec.json.encode(name) + b":"
        while True:
            at = self._data.rfind(key)
            while at >= 0:
                row = self._row(at)
                if "step" in row and name in (found := records.metrics(row)):
                    end = min([before, *(step for _, step in self._headers(at))])
                    if row["step"] <= end:
                        return found[name]
                at = self._data.rfind(key, 0, at)
            if not self._further():
                return None

    def _headers(self, at: int) -> list[tuple[int, int]]:
        """Where the session began, or went back, after a place: (place, step)."""
        found = []
        while (at := self._data.find(_SESSION_HEADER, at + 1)) >= 0:
            row = self._row(at)
            if "start_step" in row:
                found.append((at, int(row["start_step"])))
        return found

    def _row(self, at: int) -> records.Row:
        end = self._data.find(b"\n", at)
        begin = self._data.rfind(b"\n", 0, at) + 1
        return records.decode_row(self._data[begin : end if end >= 0 else len(self._data)])
