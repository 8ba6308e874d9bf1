"""What a run records over HTTP: curves as wide as a picture, and rows as they come."""

from __future__ import annotations

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
from roost.serve.routes.stream_end import RunEndDetector

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
Step = Annotated[int, Meta(ge=-(2**62), le=2**62)]
MAX_PIXELS = 10_000
_PIECE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 26


class ReadRecords(RequestParameters, frozen=True, kw_only=True):
    """Curves of a run."""

    run: RunId
    name: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    """Of metrics; without one only their names are told."""
    from_step: Step | None = None
    to_step: Step | None = None
    width: Annotated[int, Meta(ge=1, le=MAX_PIXELS)] = 1000
    """Pixels."""


class FollowRecords(RequestParameters, frozen=True, kw_only=True):
    """What a run records from now on."""

    run: RunId
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,9}:[0-9]{1,18}$")] = "0:0"
    """Of the last rows that came, or of the curves."""


class RowStream:
    """The rows of a run, followed, in the order in which they were written: some of one session at a time.
    Among them stands one with a ``start_step`` where a session began or went back: what was recorded after
    that step counts no more.

    Args:
        package: The run's folder.
        parameters: From where on.
    """

    def __init__(self, package: Path, parameters: FollowRecords) -> None:
        self._package = PackageFolder.open(package)
        self._session, self._offset = map(int, parameters.cursor.split(":"))
        self._last_line: bytes | None = None
        """The last line; None while nobody has looked."""
        self._end = RunEndDetector(self._package)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
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
        """Nothing is open between two looks."""

    def _session_numbers(self) -> list[int]:
        folder = self._package.path / "records"
        paths = folder.glob("*.jsonl") if folder.is_dir() else ()
        return [int(path.stem) for path in paths if path.stem.isdecimal()]

    def _read(self) -> list[Row] | None:
        """The next whole lines of the session, so many as fit into a piece; None if there are none."""
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
                if size > _MAX_LINE_BYTES:  # nothing that roost has written
                    end = len(data)
                    break
        finally:
            os.close(fd)
        self._offset += end
        found = []
        for line in filter(None, data[:end].split(b"\n")):
            # The disk may have been full for the line's end alone; then the row was written again.
            if line != self._last_line and (row := records.decode_row(line)):
                found.append(row)
            self._last_line = line
        return found if end else None


def _read_records(parameters: ReadRecords) -> RecordedCurves:
    from roost.operations.curves.envelope import (
        build_envelopes,  # numpy: 25 MB that a server without curves is spared
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
        raise HttpError(403, "no_rights", "the folder of the records is a link, and none is followed")
    return found


ROUTES: Sequence[Route] = (
    Route(name="read_records", path="/runs/{run}/records",
          summary="Its curves: in each column of pixels the exact first, least, greatest and last value.",
          parameters=ReadRecords, answer=RecordedCurves, run=_read_records),
    Route(name="follow_records", path="/runs/{run}/records/follow", summary="What it records, as it comes.",
          parameters=FollowRecords, answer=EventStream, run=_follow_records),
)  # fmt: skip
