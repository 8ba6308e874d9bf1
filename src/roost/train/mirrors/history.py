"""Follows the files of a run while they grow: rows of all its sessions, and media."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base import durable
from roost.package.records import Follower, Row


class Rows:
    """Reads the rows of all sessions, each line once.

    Args:
        folder: The package's ``records``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[int, Follower] = {}
        self._before: Row = {}

    def new(self) -> list[Row]:
        """The rows since the last call, in the order in which they were written; among them one that has a
        ``start_step`` where a session began, or went back."""
        found: list[Row] = []
        for number in self._growing():
            path = self._folder / f"{number}.jsonl"
            for row in self._followers.setdefault(number, Follower(path)).new_rows():
                # The disk may have been full for the line's end alone; then the row was written again.
                if row != self._before:
                    found.append(row)
                self._before = row
        return found

    def _growing(self) -> list[int]:
        """The newest session of those that were read, and all after it: one ends before the next begins."""
        try:
            paths = [Path(entry.name) for entry in os.scandir(self._folder)]
        except OSError:
            return []
        numbers = [int(path.stem) for path in paths if path.suffix == ".jsonl" and path.stem.isdecimal()]
        return sorted(number for number in numbers if number >= max(self._followers, default=0))


class Medium(NamedTuple):
    """A file below ``media``."""

    step: int
    path: Path
    written: float
    """Seconds since 1970."""


class Media:
    """Finds files below the package's ``media``, each once; again when it was written anew.

    Args:
        folder: ``media``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[int, int] = {}
        self._files: dict[Path, int] = {}

    def new(self) -> list[Medium]:
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

    def _of(self, step: int, folder: Path) -> Iterator[Medium]:
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
                yield Medium(step, path, written / 1e9)


_CLOCKS_DIFFER_SECONDS = 1.0


def outlived(medium: Medium, headers: Sequence[Row]) -> bool:
    """Whether a session went back to before this file's step after it was written: a file of a past that does
    not count any more, until the step comes again and writes it anew."""
    times = [row["time"] for row in headers if row["start_step"] < medium.step and "time" in row]
    return bool(times) and medium.written < max(times) - _CLOCKS_DIFFER_SECONDS
