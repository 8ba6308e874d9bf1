"""The packages that a server shows: those in its folders, each by an id that is not a path."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from roost.base.errors import NotFound
from roost.base.system import state_folder
from roost.lab.queue import package_roots

_ROOT_CHARACTERS, _NAME_CHARACTERS = 8, 16
_TICK_NS = 10**9
"""The coarsest time stamp of a file system. A folder that changed more recently may change again without a
new time stamp, so its names are not cached."""
_names_by_folder: dict[Path, tuple[int, dict[str, str]]] = {}
"""By folder: its modification time, and the names of its packages by the second part of their ids."""
_extra_folders: list[Path] = []


def add_folders(folders: Iterable[Path]) -> None:
    """Adds folders to those from which tasks were submitted; the folder of a project adds its ``runs``."""
    for folder in (path.resolve() for path in folders):
        _extra_folders.append(folder / "runs" if (folder / "runs").is_dir() else folder)


def serve_package(package: Path) -> str:
    """Adds the folder of a package, whose path is resolved, and returns the id of the run."""
    if package.parent not in folders():
        _extra_folders.append(package.parent)
    return run_id(package)


def folders() -> list[Path]:
    """Returns all existing folders of packages, each once."""
    found = dict.fromkeys(
        [*_extra_folders, *(path.resolve() for path in package_roots.read(state_folder.lab_folder()))]
    )
    return [folder for folder in found if folder.is_dir()]


def run_id(package: Path | str) -> str:
    """Returns the id of a run for clients. It stays the same until the package is moved, and is the same for
    every path to the package."""
    path = Path(package)
    return run_id_in(path.parent.resolve(), path.name)


def run_id_in(folder: Path, name: str) -> str:
    """Returns the id of a package in one of the `folders`, whose path is resolved already."""
    return f"{_digest(str(folder), _ROOT_CHARACTERS)}-{_digest(name, _NAME_CHARACTERS)}"


def package_path(id: str) -> Path:
    """Returns the path of a package.

    Raises:
        NotFound: No package has this id.
    """
    root, _, name = id.partition("-")
    for folder in folders():
        if _digest(str(folder), _ROOT_CHARACTERS) == root and (found := _package_names(folder).get(name)):
            path = folder / found
            if not path.is_symlink() and (path / "request.json").is_file():  # otherwise it is not a package
                return path
    raise NotFound("there is no such run", received=id, fix="take the id from GET /api/v1/runs")


def _package_names(folder: Path) -> dict[str, str]:
    changed = folder.stat().st_mtime_ns
    before = _names_by_folder.get(folder)
    if before is not None and before[0] == changed:
        return before[1]
    found = {_digest(path.name, _NAME_CHARACTERS): path.name for path in folder.iterdir()}
    if time.time_ns() - changed > _TICK_NS:
        _names_by_folder[folder] = (changed, found)
    return found


def _digest(text: str, characters: int) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:characters]
