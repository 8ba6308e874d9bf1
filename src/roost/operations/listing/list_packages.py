"""``ls``: the packages of a folder.

Ten thousand packages are listed in a tenth of a second: the summary of a package whose ``sessions`` folder
has not changed comes from an index, at the cost of one ``stat``. Where only the newest packages are needed,
and the time of the folder shows that none was added or removed, only these cost one. The index is a cache; it
can be removed at any time.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.base import durable
from roost.base.errors import NotFound
from roost.operations import work_progress
from roost.operations.cache_folder import package_index_path, write_cache_file
from roost.operations.listing.package_row import CHANGING_STATES, FoundPackage, IndexEntry, PackageSummary
from roost.operations.listing.search import search
from roost.operations.listing.search_columns import SearchColumns
from roost.package.dlnest import original_folder

_FORMAT = 11
_SETTLED_SECONDS = 2.0
"""A folder that was changed later than that may change again within the same tick of its clock."""
_USUAL_FOLDERS = ("runs", "Saves")
"""The folders of a project that hold its packages, if its config names no other; Saves: in DLNest's
contract."""


class _Index(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    changed: int
    """The time of the folder, in nanoseconds, when it had these packages; 0: not known."""
    entries: dict[str, IndexEntry]
    """Sorted by name."""


def list_packages(directory: Path | str | None = None, query: str = "") -> list[PackageSummary]:
    """Returns the packages of a folder, sorted by name, which for most names is by time.

    Args:
        directory: The folder, or one package. In a folder without packages its ``runs`` or ``Saves`` is
            read. None: the current folder.
        query: Selects and sorts the packages: `roost.operations.listing.query`.

    Raises:
        NotFound: There is no such folder.
        UsageError: The query is not valid.
    """
    return [one.entry.summary for one in find_packages([directory], query).selected]


class FoundPackages(NamedTuple):
    """The packages that a query selects from some folders."""

    selected: list[FoundPackage]
    """In the order of the query, else by folder and name."""
    columns: SearchColumns
    """The settings and metrics of all packages of the folders, read when they are asked for."""


def find_packages(directories: Iterable[Path | str | None], query: str = "") -> FoundPackages:
    """Returns the packages of several folders that a query selects, each once. For the arguments and the
    errors see `list_packages`."""
    by_place: dict[str, dict[str, FoundPackage]] = {}
    for directory in dict.fromkeys(directories):
        folder, found = _find_entries(directory)
        place = os.path.realpath(folder)  # a folder may be given twice, by different paths
        by_place[place] = dict(zip(found, _in_folder(folder, found), strict=True)) | by_place.get(place, {})
    packages = [one for found in by_place.values() for one in found.values()]
    columns = SearchColumns(packages)
    return FoundPackages(search(packages, query, columns) if query else packages, columns)


def find_newest(directory: Path | str | None, count: int) -> tuple[FoundPackages, int]:
    """Returns those ``count`` packages of a folder that started last, sorted by name, and how many others it
    has.

    Raises:
        NotFound: There is no such folder.
    """
    given = Path(directory if directory is not None else ".").absolute()
    folders = [] if _is_package(given) else [given, *(given / name for name in _USUAL_FOLDERS)]
    for folder in filter(Path.is_dir, folders):
        if (newest := _known_newest(folder, count)) is not None:
            packages = _in_folder(folder, newest.kept)
            columns = SearchColumns(packages, is_whole=not newest.num_others)
            return FoundPackages(packages, columns), newest.num_others
        if entries(folder):  # which completes the index
            break
    every = find_packages([directory])
    selected = select_newest(every.selected, count)
    return FoundPackages(selected, every.columns), len(every.selected) - len(selected)


def select_newest(packages: Sequence[FoundPackage], count: int) -> list[FoundPackage]:
    """Returns those ``count`` of some packages that started last, in their order."""
    started = [one.entry.summary.started or 0.0 for one in packages]
    kept = heapq.nlargest(count, range(len(packages)), key=lambda at: (started[at], at))
    return [packages[at] for at in sorted(kept)]


def _in_folder(folder: Path, found: dict[str, IndexEntry]) -> list[FoundPackage]:
    return list(map(FoundPackage, repeat(folder), found, found.values()))


class _Newest(NamedTuple):
    kept: dict[str, IndexEntry]
    num_others: int


def _known_newest(folder: Path, count: int) -> _Newest | None:
    """Returns the newest packages of a folder by the index alone, if it still has all of them; None if it is
    empty, or packages were added, removed or begun since."""
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None
    index = _read(package_index_path(folder), folder)
    if index is None or not index.entries or index.changed != changed:
        return None
    kept = {one.name: one.entry for one in select_newest(_in_folder(folder, index.entries), count)}
    unstarted = [name for name, entry in index.entries.items() if entry.summary.started is None]
    stamps = _stamps(folder, {*kept, *unstarted})
    if any(index.entries[name].stamp != stamps.get(name) for name in {*kept, *unstarted}):
        return None
    for name, entry in kept.items():
        if entry.summary.state in CHANGING_STATES:
            if (fresh := _read_entry(folder / name, entry.stamp)) is None:
                return None
            kept[name] = fresh
    return _Newest(kept, len(index.entries) - len(kept))


def listed_folder(directory: Path | str | None = None) -> Path:
    """Returns the folder whose packages `list_packages` lists for ``directory``; raises the same errors."""
    folder, _ = _find_entries(directory)
    return folder


def _find_entries(directory: Path | str | None) -> tuple[Path, dict[str, IndexEntry]]:
    given = Path(directory if directory is not None else ".").absolute()
    if not given.is_dir():
        raise NotFound(
            "there is no such folder", received=str(given), fix="give the folder that holds the packages"
        )
    if _is_package(given):
        return given.parent, {given.name: IndexEntry((0, 0), _summarize(given))}
    if found := entries(given):
        return given, found
    inside = [folder for name in _USUAL_FOLDERS if (folder := given / name).is_dir()]
    for folder in inside:
        if found := entries(folder):
            return folder, found
    return (inside or [given])[0], {}


def _is_package(path: Path) -> bool:
    return (path / "request.json").is_file() or original_folder.is_original(path)


def entries(folder: Path) -> dict[str, IndexEntry]:
    """Returns the packages of this folder itself, by name."""
    path = package_index_path(folder)
    index = _read(path, folder)
    known = index.entries if index is not None else {}
    changed = _settled_time(folder)  # before its packages are listed
    stamps = _stamps(folder)
    found: dict[str, IndexEntry] = {}
    for name, entry in known.items():  # in the order of the index, which is sorted
        if entry.stamp == stamps.get(name) and entry.summary.state not in CHANGING_STATES:
            found[name] = entry
            del stamps[name]
    if stamps or len(found) < len(known):
        unknown = work_progress.track(stamps.items(), "reading packages")
        fresh = {name: one for name, stamp in unknown if (one := _read_entry(folder / name, stamp))}
        found = dict(sorted((found | fresh).items()))
    if found != known or index is None or index.changed != changed:
        _write(path, _Index(_FORMAT, os.fspath(folder), changed, found))
    return found


def _settled_time(folder: Path) -> int:
    """Returns the time of the last change of a folder, in nanoseconds; 0 if it may have changed just now."""
    changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
    return changed if abs(time.time() - changed / 1e9) > _SETTLED_SECONDS else 0


def _stamps(folder: Path, names: Iterable[str] | None = None) -> dict[str, tuple[int, int]]:
    """Returns the stamp of each entry that is a package: time and inode of its ``sessions`` folder; of one
    that has only ``Checkpoints``, the stamp of that; zeros for a package that lacks ``sessions``, which is
    damaged.

    The stamp changes when a session is added or ends, because session files are renamed into place, when
    labels are given (`roost.package.labels`), and when another package takes the name.

    Args:
        folder: The folder.
        names: Its entries; None: all.
    """
    stamps: dict[str, tuple[int, int]] = {}
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(root) if names is None else names:  # noqa: PTH208  - by its descriptor
            if durable.is_staging(name):  # a package that is being made, or never was
                continue
            try:
                found = os.stat(f"{name}/sessions", dir_fd=root)  # faster than by the whole path
            except OSError:
                if os.access(f"{name}/request.json", os.F_OK, dir_fd=root):
                    stamps[name] = 0, 0
                    continue
                try:  # a package of DLNest's own programs, perhaps
                    found = os.stat(f"{name}/Checkpoints", dir_fd=root)
                except OSError:
                    continue
            stamps[name] = found.st_mtime_ns, found.st_ino
    finally:
        os.close(root)
    return stamps


def _read_entry(path: Path, stamp: tuple[int, int]) -> IndexEntry | None:
    try:
        return IndexEntry(stamp, _summarize(path))
    except (NotFound, FileNotFoundError):  # being created, or removed meanwhile
        return None
    except OSError as error:
        return IndexEntry(stamp, PackageSummary(name=path.name, state="damaged", error=str(error)))


def _summarize(path: Path) -> PackageSummary:
    from roost.operations.listing.package_summary import (
        summarize,  # 40 ms of imports that a known package does not need
    )

    return summarize(path)


def _read(index: Path, folder: Path) -> _Index | None:
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, ValueError):
        return None
    return found if found.format == _FORMAT and found.folder == os.fspath(folder) else None


def _write(index: Path, content: _Index) -> None:
    try:
        data = msgspec.json.encode(content)
    except UnicodeEncodeError:
        return  # JSON cannot hold one of the names: the next list takes longer
    write_cache_file(index, data)
