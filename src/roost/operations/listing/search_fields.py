"""The fields of a run that queries search: its settings, and the newest value of each metric."""

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
_LEAST_INTEGER, _GREATEST_INTEGER = -(1 << 63), (1 << 64) - 1
"""The integers that MessagePack has, in which the fields are stored; a larger one becomes a float."""


class SearchFields(NamedTuple):
    """The searchable fields of one run."""

    settings: dict[str, list[Setting]]
    """The effective settings by dotted name; the elements of a list share one name."""
    metrics: dict[str, float]
    """The newest value of each metric."""


def read_search_fields(path: Path, *, max_record_bytes: float = math.inf) -> SearchFields:
    """Reads the fields of a package. Files that cannot be read are left out.

    For a session with long records, only the metrics at its beginning, near its end and in its checkpoints
    are found; their values are the newest.

    Args:
        path: The package.
        max_record_bytes: Longer records are not read: the values are those of the newest checkpoint that has
            them.
    """
    settings: dict[str, list[Setting]] = {}
    with suppress(RoostError, OSError):
        package_schema.sessions(path)  # a damaged request cannot be folded into the settings
        for name, value in flatten(package_schema.settings(PackageFolder(path))):
            settings.setdefault(name, []).append(value)
    with suppress(OSError):
        is_short = sum(one.stat().st_size for one in _record_files(path).values()) <= max_record_bytes
        return SearchFields(settings, newest_metrics(path) if is_short else _checkpoint_metrics(path))
    return SearchFields(settings, {})


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Yields each single value of nested settings, with its dotted name."""
    for key, value in values.items():
        yield from _flatten_value(f"{prefix}{key}", value)


def _flatten_value(name: str, value: Any) -> Iterator[tuple[str, Setting]]:
    if isinstance(value, Mapping):
        yield from flatten(value, f"{name}.")
    elif isinstance(value, list):
        for one in value:
            yield from _flatten_value(name, one)
    elif isinstance(value, int) and not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
        yield name, _to_float(value)
    else:
        yield name, value


def _to_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def newest_metrics(path: Path) -> dict[str, float]:
    """Returns the newest value of every metric of a package.

    Raises:
        OSError: Its records cannot be read.
    """
    found = _record_files(path)
    if sum(one.stat().st_size for one in found.values()) <= _WHOLE_BYTES:
        return records.fold(path / "records").last()
    values: dict[str, float] = {}
    before = math.inf
    checkpoint_metrics = _checkpoint_metrics(path)
    for number, file in sorted(found.items(), reverse=True):
        with open(safe_read.open_fd(file), "rb", buffering=0) as opened:
            search = _RecordsSearch(opened.fileno())
            if not search.has_header:
                continue
            for name in (search.names() | checkpoint_metrics.keys()) - values.keys():
                if (value := search.newest(name, before)) is not None:
                    values[name] = value
            if number > min(found):
                before = min(before, search.start())
    return values


def _record_files(path: Path) -> dict[int, Path]:
    """Returns the records files of a package, by session."""
    folder = path / "records"
    if not folder.is_dir():
        return {}
    return {int(one.stem): one for one in folder.glob("*.jsonl") if one.stem.isdecimal()}


def _checkpoint_metrics(path: Path) -> dict[str, float]:
    """Returns the metrics of the checkpoints, with their newest values: a validation long ago is in no row
    near the end."""
    found: dict[str, float] = {}
    with suppress(OSError, CheckpointError):
        for info in checkpoint.read_manifests(path / "Checkpoints"):
            found |= info.metrics
    return found


class _RecordsSearch:
    """Searches a long records file from its end, and reads only as far back as needed.

    Args:
        fd: The open file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begin = os.fstat(fd).st_size
        self._data = b""
        self._first_part = os.pread(fd, _PART_BYTES, 0)
        self._read_further()

    @property
    def has_header(self) -> bool:
        """Whether the file has a session header, with the step at which the session began. Rows without one
        are void."""
        return _SESSION_HEADER in self._first_part

    def _read_further(self) -> bool:
        """Doubles the part that is read; returns False if all was read already."""
        length = min(self._begin, max(_PART_BYTES, len(self._data)))
        self._begin -= length
        self._data = os.pread(self._fd, length, self._begin) + self._data
        return length > 0

    def start(self) -> int:
        """Returns the earliest step from which the session began or continued."""
        while self._read_further():
            pass
        return min(step for _, step in self._headers(0))

    def names(self) -> set[str]:
        """Returns the metrics near the beginning and the end of the file."""
        pieces = [self._first_part, self._data[-_PART_BYTES:]]
        rows = (records.decode_row(line) for piece in pieces for line in piece.split(b"\n"))
        return {name for row in rows for name in records.metrics(row)}

    def newest(self, name: str, before: float) -> float | None:
        """Returns the newest effective value of a metric; None if there is none.

        Args:
            name: The metric.
            before: Rows after this step are void: a later session has replaced them.
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
            if not self._read_further():
                return None

    def _headers(self, at: int) -> list[tuple[int, int]]:
        """Returns the session headers after an offset, at which the session began or went back: (offset,
        step)."""
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
