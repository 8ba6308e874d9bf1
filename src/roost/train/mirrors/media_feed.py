"""Follows the media files of a run while they are written, as `roost.package.records_follower` follows
rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base import durable
from roost.package.records import Row


class MediaFile(NamedTuple):
    """A media file of a package."""

    step: int
    path: Path
    written: float
    """Seconds since 1970."""


class MediaFeed:
    """Finds the files in the folder ``media`` of a package, each once, and again if it was replaced.

    Args:
        folder: The folder ``media``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[int, int] = {}
        self._files: dict[Path, int] = {}

    def new(self) -> list[MediaFile]:
        """Returns the files that are new since the last call, sorted by step."""
        found = [
            file for step, folder in self._changed_folders() for file in self._changed_files(step, folder)
        ]
        return sorted(found)

    def _changed_folders(self) -> Iterator[tuple[int, Path]]:
        """The folders in which a file was added or replaced: a rename changes the time of the folder
        itself."""
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False):
                changed = entry.stat(follow_symlinks=False).st_mtime_ns
                if self._folders.get(int(entry.name)) != changed:
                    self._folders[int(entry.name)] = changed
                    yield int(entry.name), Path(entry.path)

    def _changed_files(self, step: int, folder: Path) -> Iterator[MediaFile]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            if durable.is_staging(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            written, path = entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)
            if self._files.get(path) != written:
                self._files[path] = written
                yield MediaFile(step, path, written / 1e9)


_CLOCK_TOLERANCE_SECONDS = 1.0


def is_superseded(file: MediaFile, headers: Sequence[Row]) -> bool:
    """Whether the run went back to before the step of a file after the file was written: it belongs to steps
    that no longer count, until the step is taken again and replaces it."""
    times = [row["time"] for row in headers if row["start_step"] < file.step and "time" in row]
    return bool(times) and file.written < max(times) - _CLOCK_TOLERANCE_SECONDS
