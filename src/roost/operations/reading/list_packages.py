"""``ls``: the packages of a folder.

Ten thousand of them are listed in a tenth of a second: a package whose ``sessions`` folder has not changed
is taken from an index, for one look at that folder. The index is a cache; whoever removes it loses time only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from roost.base.errors import NotFound
from roost.operations.cache_folder import package_index_path, write_cache_file
from roost.operations.reading.package_row import CHANGING_STATES, IndexEntry, PackageSummary

_FORMAT = 5


class _Index(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    entries: dict[str, IndexEntry]


def list_packages(directory: Path | str | None = None, query: str = "") -> list[PackageSummary]:
    """The packages in a folder, by name, which for most is by time.

    Args:
        directory: The folder; one without packages stands for its ``runs``. None: the current one.
        query: Those that are meant, and their order: `roost.operations.reading.query`.

    Raises:
        NotFound: There is no such folder.
        UsageError: The query means nothing.
    """
    folder, found = _find_entries(directory)
    if not query:
        return [entry.summary for entry in found.values()]
    from roost.operations.reading.search import FoundPackage, search

    return [one.entry.summary for one in search([FoundPackage(folder, *one) for one in found.items()], query)]


def listed_folder(directory: Path | str | None = None) -> Path:
    """The folder whose packages are listed; arguments and errors as of `list_packages`."""
    folder, _ = _find_entries(directory)
    return folder


def _find_entries(directory: Path | str | None) -> tuple[Path, dict[str, IndexEntry]]:
    given = Path(directory if directory is not None else ".").absolute()
    if not given.is_dir():
        raise NotFound(
            "there is no such folder", received=str(given), fix="give the folder that holds the packages"
        )
    if (given / "request.json").is_file():
        return given.parent, {given.name: IndexEntry((0, 0), _summarize(given))}
    if found := entries(given):
        return given, found
    return (given / "runs", entries(given / "runs")) if (given / "runs").is_dir() else (given, {})


def entries(folder: Path) -> dict[str, IndexEntry]:
    """The packages in this folder itself, by name."""
    index = package_index_path(folder)
    known = _read(index, folder)
    found: dict[str, IndexEntry] = {}
    stale = False
    for name, stamp in _stamps(folder):
        entry = known.get(name)
        if entry is None or entry.stamp != stamp or entry.summary.state in CHANGING_STATES:
            entry, stale = _read_entry(folder / name, stamp), True
        if entry is not None:
            found[name] = entry
    if stale or len(found) != len(known):
        _write(index, _Index(_FORMAT, os.fspath(folder), found))
    return dict(sorted(found.items()))


def _stamps(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each entry that has a ``sessions`` folder, with that folder's time and number.

    One of them changes when a session is added or ends, because their files are renamed into place, or when
    another package takes the name.
    """
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                try:
                    found = os.stat(f"{entry.name}/sessions", dir_fd=root)  # quicker than by the whole path
                except OSError:
                    continue
                yield entry.name, (found.st_mtime_ns, found.st_ino)
    finally:
        os.close(root)


def _read_entry(path: Path, stamp: tuple[int, int]) -> IndexEntry | None:
    try:
        return IndexEntry(stamp, _summarize(path))
    except (NotFound, FileNotFoundError):  # being made, or gone meanwhile
        return None
    except OSError as error:
        return IndexEntry(stamp, PackageSummary(name=path.name, state="damaged", error=str(error)))


def _summarize(path: Path) -> PackageSummary:
    from roost.operations.reading.package_summary import (
        summarize,  # 40 ms of imports that a known package does not need
    )

    return summarize(path)


def _read(index: Path, folder: Path) -> dict[str, IndexEntry]:
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError):
        return {}
    return found.entries if found.format == _FORMAT and found.folder == os.fspath(folder) else {}


def _write(index: Path, content: _Index) -> None:
    try:
        data = msgspec.json.encode(content)
    except UnicodeEncodeError:
        return  # a name that JSON cannot hold: the next look takes longer
    write_cache_file(index, data)
