"""The routes of a run's records: curves reduced to a width in pixels, and an event stream of the rows."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base import safe_read
from roost.operations.curves.curve import RecordedCurves
from roost.operations.responses import RowPiece, StreamEvent
from roost.package import records
from roost.package.package import PackageFolder
from roost.package.records import Row
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import EventStream, RequestParameters, Route
from roost.serve.routes import served_packages
from roost.serve.routes.stream_end import StreamEndDetector, is_run_over

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
Step = Annotated[int, Meta(ge=0, le=2**62)]
MAX_PIXELS = 10_000
_PIECE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 26


class ReadRecords(RequestParameters, frozen=True, kw_only=True):
    """Curves of a run."""

    run: RunId
    name: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    """Names of metrics; without any, the answer has only the names."""
    from_step: Step | None = None
    to_step: Step | None = None
    width: Annotated[int, Meta(ge=1, le=MAX_PIXELS)] = 1000
    """Pixels."""


class FollowRecords(RequestParameters, frozen=True, kw_only=True):
    """The rows of a run, from a cursor on."""

    run: RunId
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,9}:[0-9]{1,18}$")] = "0:0"
    """The cursor of the last rows received, or of the curves."""


class RowStream:
    """The event stream of a run's rows, in the order in which they were written, several of one session at a
    time. A row with a ``start_step`` marks where a session began or went back: it withdraws the rows after
    that step.

    Args:
        package: The run's folder.
        parameters: The cursor to start from.
    """

    def __init__(self, package: Path, parameters: FollowRecords) -> None:
        self._package = PackageFolder.open(package)
        self._session, self._offset = map(int, parameters.cursor.split(":"))
        self._last_line: bytes | None = None
        """The last line that was read; None before the first read."""
        self._end = StreamEndDetector(functools.partial(is_run_over, self._package))

    @property
    def has_ended(self) -> bool:
        """Whether the run is over and its rows were read."""
        return self._end.has_ended

    def read_new(self) -> Sequence[StreamEvent[RowPiece]]:
        later = sorted(number for number in self._session_numbers() if number > self._session)
        while not (found := self._read()):
            if found is None and not later:
                return ()
            if found is None:  # a session ends before the next begins
                self._session, self._offset, self._last_line = later.pop(0), 0, b""
        self._end.data_arrived()
        piece = RowPiece(self._session, found)
        return (StreamEvent(f"{self._session}:{self._offset}", "rows", piece),)

    def close(self) -> None:
        """Does nothing: no file is open between two reads."""

    def _session_numbers(self) -> list[int]:
        folder = self._package.path / "records"
        paths = folder.glob("*.jsonl") if folder.is_dir() else ()
        return [int(path.stem) for path in paths if path.stem.isdecimal()]

    def _read(self) -> list[Row] | None:
        """Returns the rows of the next whole lines of the session, as many as fit into a piece; None if there
        are none."""
        try:
            fd = safe_read.open_fd(
                self._package.path / "records" / f"{self._session}.jsonl", follow_link=False
            )
        except OSError:
            return None
        size = _PIECE_BYTES
        try:
            if self._last_line is None:
                begin = max(0, self._offset - size)
                self._last_line = os.pread(fd, self._offset - begin, begin).rstrip(b"\n").rpartition(b"\n")[2]
            while (
                not (end := (data := os.pread(fd, size, self._offset)).rfind(b"\n") + 1) and len(data) == size
            ):
                size *= 2
                if size > _MAX_LINE_BYTES:  # not written by roost
                    end = len(data)
                    break
        finally:
            os.close(fd)
        self._offset += end
        found = []
        for line in filter(None, data[:end].split(b"\n")):
            # If the disk was full for the end of the line only, the row was written again.
            if line != self._last_line and (row := records.decode_row(line)):
                found.append(row)
            self._last_line = line
        return found if end else None


def _read_records(parameters: ReadRecords) -> RecordedCurves:
    from roost.operations.curves.envelope import (
        build_envelopes,  # numpy: 25 MB, which a server without curves saves
    )

    folder = _records_folder(served_packages.package_path(parameters.run))
    return build_envelopes(
        folder,
        parameters.name,
        from_step=parameters.from_step,
        to_step=parameters.to_step,
        width=parameters.width,
    )


def _follow_records(parameters: FollowRecords) -> EventStream:
    package = served_packages.package_path(parameters.run)
    _records_folder(package)
    return RowStream(package, parameters)


def _records_folder(package: Path) -> Path:
    found = package / "records"
    if found.is_symlink():
        raise HttpError(403, "no_rights", "the folder of the records is a link, and links are not followed")
    return found


ROUTES: Sequence[Route] = (
    Route(name="read_records", path="/runs/{run}/records",
          summary="Curves of a run: exact first, least, greatest and last value of each column of pixels.",
          parameters=ReadRecords, answer=RecordedCurves, run=_read_records),
    Route(name="follow_records", path="/runs/{run}/records/follow",
          summary="The rows of a run, as they are written.",
          parameters=FollowRecords, answer=EventStream, run=_follow_records),
)  # fmt: skip
