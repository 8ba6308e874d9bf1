"""The forks of a package: the packages next to it that began with one of its checkpoints.

The parent of a package never changes, so a process that asks again, such as a server, reads only new
packages. While the folder does not change, the time of an answer does not depend on their number.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import NotFound
from roost.operations.listing.list_packages import entries
from roost.operations.listing.package_row import PackageSummary
from roost.operations.listing.package_summary import summarize
from roost.operations.reading import package_schema
from roost.operations.reading.package_schema import DamagedPackage
from roost.package import lineage

_TICK_NS = 10**9
"""The coarsest time stamp of a file system: a folder that changed more recently is listed again."""
_MANY = 100
"""From this number on, unknown packages are read through the index of `roost ls`."""

_Entry = tuple[str, int]
"""The name of a package and its inode, which differs if another package takes the name."""


@dataclass(frozen=True)
class _Folder:
    """The parents of the packages of a folder."""

    changed: int = -1
    """The folder's modification time when it was listed; -1: it must be listed again."""
    parents: dict[_Entry, str | None] = field(default_factory=dict)
    """The name of each package's parent."""
    incomplete: frozenset[_Entry] = frozenset()
    """Folders that are no packages, or not yet."""
    forks: dict[str, list[str]] = field(default_factory=dict)
    """The names of the forks of each parent."""


_folders: dict[Path, _Folder] = {}


def find_forks(package: Path) -> list[PackageSummary]:
    """Returns the forks of a package that are in its folder, sorted by name.

    Raises:
        OSError: The folder cannot be read.
    """
    folder = package.parent
    names = _current(folder).forks.get(package_schema.printable(package.name), [])
    return [row for name in names if (row := _row(folder / name)) is not None]


def _row(path: Path) -> PackageSummary | None:
    try:
        return summarize(path)
    except (NotFound, FileNotFoundError):  # removed meanwhile
        return None
    except OSError as error:
        return PackageSummary(name=path.name, state="damaged", error=str(error))


def _current(folder: Path) -> _Folder:
    before, changed = _folders.get(folder, _Folder()), folder.stat().st_mtime_ns
    found = set(before.parents) | before.incomplete if before.changed == changed else _list(folder)
    parents = {one: parent for one, parent in before.parents.items() if one in found}
    unknown = found - parents.keys()
    read = _read_parents(folder, unknown)
    if before.changed == changed and not read:
        return before
    parents |= read
    forks: dict[str, list[str]] = {}
    for (name, _), parent in sorted(parents.items()):
        if parent is not None:
            forks.setdefault(parent, []).append(name)
    is_settled = time.time_ns() - changed > _TICK_NS
    current = _Folder(changed if is_settled else -1, parents, frozenset(unknown - read.keys()), forks)
    _folders[folder] = current
    return current


def _list(folder: Path) -> set[_Entry]:
    with os.scandir(folder) as listed:
        return {(one.name, one.inode()) for one in listed if one.is_dir()}


def _read_parents(folder: Path, unknown: set[_Entry]) -> dict[_Entry, str | None]:
    """Returns the parents of those that are packages."""
    known = entries(folder) if len(unknown) >= _MANY else {}
    found: dict[_Entry, str | None] = {}
    for entry in unknown:
        name = entry[0]
        if name in known:
            found[entry] = known[name].summary.parent
            continue
        try:
            ancestry = lineage.ancestry_of_request(package_schema.load(folder / name, "request.json"))
        except DamagedPackage:
            if (folder / name / "request.json").exists():
                found[entry] = None
            continue
        found[entry] = ancestry[0].package if ancestry else None
    return found
