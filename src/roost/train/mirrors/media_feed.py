"""Follows the media of a run while they come, as `roost.package.records_follower` does its rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base import durable
from roost.package.records import Row


class MediaFile(NamedTuple):
    """A file below ``media``."""

    step: int
    path: Path
    written: float
    """Seconds since 1970."""


class MediaFeed:
    """Finds files below the package's ``media``, each once; again when it was written anew.

    Args:
        folder: ``media``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[int, int] = {}
        self._files: dict[Path, int] = {}

    def new(self) -> list[MediaFile]:
        """What is new since the last call, by step."""
        found = [medium for step, folder in self._changed() for medium in self._of(step, folder)]
        return sorted(found)

    def _changed(self) -> Iterator[tuple[int, Path]]:
        """The folders in which a file appeared or was replaced: a rename changes the folder's own time."""
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

    def _of(self, step: int, folder: Path) -> Iterator[MediaFile]:
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


def is_superseded(medium: MediaFile, headers: Sequence[Row]) -> bool:
    """Whether a session went back to before this file's step after it was written: a file of a past that does
    not count any more, until the step comes again and writes it anew."""
    times = [row["time"] for row in headers if row["start_step"] < medium.step and "time" in row]
    return bool(times) and medium.written < max(times) - _CLOCK_TOLERANCE_SECONDS
