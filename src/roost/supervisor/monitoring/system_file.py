"""Writes the file `roost.package.results.system_metrics`: rows are appended; when it is full, each two are
merged into one."""

# Standard library only
# Not durable: appended without a sync, which would wait behind a checkpoint's gigabytes while signals come;
# the rewritten file is renamed into place, and synced with the last row

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemGap, SystemRow

_FLUSH_SECONDS = 5.0
"""How often rows are appended: a supervisor that is killed loses at most those since then."""
_RETRY_SECONDS = 30.0
_MERGED_LINES = 512
"""How many lines are merged at once, in some milliseconds: the supervisor has other work."""
_MAX_WAITING_BYTES = 1 << 18
"""While the disk is full, so many bytes of rows are kept for it."""
_MAX_GAPS = 200


class SystemFile:
    """The metrics of one session, appended to as they come.

    Args:
        path: The file, which must not exist; its folder is made.
        columns: The names of the columns.
        max_rows: How many rows it has at most.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, path: Path, columns: list[str], *, max_rows: int = system_metrics.MAX_ROWS) -> None:
        durable.make_folder(path.parent, exist_ok=True)
        self._path, self._columns, self._max_rows = path, columns, max_rows
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self.row_seconds = 1.0
        """How long a row is, at least."""
        self.error = ""
        """Why the rows of now cannot be written; empty: they can."""
        self._open_row: SystemRow | None = None
        self._waiting: list[bytes] = [_encode({"format": system_metrics.FORMAT, "columns": columns})]
        self._num_rows = self._num_bytes = self._num_gaps = 0
        self._flush_at = 0.0
        self._rewriting: Iterator[None] | None = None

    def add_facts(self, facts: dict[str, Any]) -> None:
        """Adds facts about the session (`SystemColumns.facts`)."""
        self._waiting.append(_encode(facts))

    def add_gap(self, gap: SystemGap) -> None:
        """Adds a time in which something was not measured."""
        self._num_gaps += 1
        if self._num_gaps <= _MAX_GAPS:
            self._waiting.append(_encode({"gap": [round(gap.begin, 1), round(gap.end, 1), gap.reason]}))

    def add(self, row: SystemRow) -> None:
        """Adds a row, which is joined to the one before until that is long enough."""
        row = row if self._open_row is None else system_metrics.merge(self._open_row, row)
        self._open_row = row
        if row.seconds >= 0.75 * self.row_seconds:
            self._waiting.append(system_metrics.encode_row(row))
            self._num_rows += 1
            self._open_row = None

    def work(self, now: float) -> None:
        """Writes what is due (``now``: monotonic seconds). An error is kept in `error`; the rows wait for a
        disk that is full, the oldest are dropped."""
        if self._rewriting is not None:
            self._rewrite_more(now)
        elif now >= self._flush_at:
            self._flush_at = now + _FLUSH_SECONDS
            self._flush()
            if self._num_rows >= self._max_rows or self._num_bytes >= system_metrics.MAX_BYTES:
                self._rewriting = self._rewrite()

    def finish(self) -> None:
        """Writes the last rows and makes the file durable. An error is kept in `error`."""
        if self._rewriting is not None:
            with contextlib.suppress(OSError):
                for _ in self._rewriting:
                    pass
        if self._open_row is not None:
            self._waiting.append(system_metrics.encode_row(self._open_row))
            self._open_row = None
        self._flush()
        try:
            os.fsync(self._fd)
            durable.fsync_folder(self._path.parent)
        except OSError as error:
            self.error = self.error or _describe(error)
        os.close(self._fd)

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        if not data:
            return
        try:
            durable.append(self._fd, data)
        except OSError as error:
            self.error = _describe(error)
            with contextlib.suppress(OSError):  # a part was written, and all of it will be again
                os.ftruncate(self._fd, self._num_bytes)
            self._drop_oldest()
            return
        self.error = ""
        self._num_bytes += len(data)
        self._waiting = []

    def _drop_oldest(self) -> None:
        size = sum(map(len, self._waiting))
        while size > _MAX_WAITING_BYTES and len(self._waiting) > 1:
            size -= len(self._waiting.pop(1))  # the first names the columns

    def _rewrite_more(self, now: float) -> None:
        assert self._rewriting is not None
        try:
            next(self._rewriting)
        except StopIteration:
            self._rewriting = None
        except OSError as error:
            self.error, self._rewriting = _describe(error), None
            self._flush_at = now + _RETRY_SECONDS

    def _rewrite(self) -> Iterator[None]:
        """Merges each two rows of the file into another one, some at a time, which takes its place."""
        self.row_seconds *= 2
        staging = durable.staging_name(self._path)
        fd = os.open(staging, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            rows = num_bytes = 0
            before: SystemRow | None = None
            with open(self._path, "rb") as file:
                while lines := list(islice(file, _MERGED_LINES)):
                    merged, before = _merged(lines, before, len(self._columns))
                    data = b"".join(merged)
                    durable.append(fd, data)
                    rows, num_bytes = rows + sum(map(_is_row, merged)), num_bytes + len(data)
                    yield
            if before is not None:
                data = system_metrics.encode_row(before)
                durable.append(fd, data)
                rows, num_bytes = rows + 1, num_bytes + len(data)
            staging.rename(self._path)
        except BaseException:
            os.close(fd)
            durable.discard(staging)
            self.row_seconds /= 2
            raise
        os.close(self._fd)
        self._fd, self._num_rows, self._num_bytes = fd, rows + sum(map(_is_row, self._waiting)), num_bytes


def _merged(
    lines: list[bytes], before: SystemRow | None, num_columns: int
) -> tuple[list[bytes], SystemRow | None]:
    """Each two rows as one, between lines of facts as they are; and the last row if it is single."""
    merged: list[bytes] = []
    for line in lines:
        found = system_metrics.decode_line(line, num_columns)
        if isinstance(found, dict):
            merged.append(line)
        elif before is None:
            before = found
        elif found is not None:
            merged.append(system_metrics.encode_row(system_metrics.merge(before, found)))
            before = None
    return merged, before


def _is_row(line: bytes) -> bool:
    return line.startswith(b"[")


def _encode(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode() + b"\n"


def _describe(error: OSError) -> str:
    return error.strerror or str(error)
