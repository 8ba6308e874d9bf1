"""``ls``: the packages of a folder.

Ten thousand packages are listed in a tenth of a second: the summary of a package whose ``sessions`` folder
has not changed comes from an index, at the cost of one ``stat``. The index is a cache; it can be removed at
any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.base.errors import NotFound
from roost.operations import work_progress
from roost.operations.cache_folder import package_index_path, write_cache_file
from roost.operations.listing.package_row import CHANGING_STATES, FoundPackage, IndexEntry, PackageSummary
from roost.operations.listing.search import search
from roost.operations.listing.search_columns import SearchColumns
from roost.package.dlnest import original_folder

_FORMAT = 9
_USUAL_FOLDERS = ("runs", "Saves")
"""The folders of a project that hold its packages, if its config names no other; Saves: in DLNest's
contract."""


class _Index(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
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
        known = by_place.setdefault(place, {})
        known |= {name: FoundPackage(folder, name, one) for name, one in found.items() if name not in known}
    packages = [one for found in by_place.values() for one in found.values()]
    columns = SearchColumns(packages)
    return FoundPackages(search(packages, query, columns) if query else packages, columns)


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
    if (given / "request.json").is_file() or original_folder.is_original(given):
        return given.parent, {given.name: IndexEntry((0, 0), _summarize(given))}
    if found := entries(given):
        return given, found
    inside = [folder for name in _USUAL_FOLDERS if (folder := given / name).is_dir()]
    for folder in inside:
        if found := entries(folder):
            return folder, found
    return (inside or [given])[0], {}


def entries(folder: Path) -> dict[str, IndexEntry]:
    """Returns the packages of this folder itself, by name."""
    index = package_index_path(folder)
    known = _read(index, folder)
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
        _write(index, _Index(_FORMAT, os.fspath(folder), found))
    return found


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns the stamp of each entry that is a package: time and inode of its ``sessions`` folder; of one
    that has only ``Checkpoints``, the stamp of that; zeros for a package that lacks ``sessions``, which is
    damaged.

    The stamp changes when a session is added or ends, because session files are renamed into place, when
    labels are given (`roost.package.labels`), and when another package takes the name.
    """
    stamps: dict[str, tuple[int, int]] = {}
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(root):  # noqa: PTH208  - by its descriptor
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


def _read(index: Path, folder: Path) -> dict[str, IndexEntry]:
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, ValueError):
        return {}
    return found.entries if found.format == _FORMAT and found.folder == os.fspath(folder) else {}


def _write(index: Path, content: _Index) -> None:
    try:
        data = msgspec.json.encode(content)
    except UnicodeEncodeError:
        return  # JSON cannot hold one of the names: the next list takes longer
    write_cache_file(index, data)
