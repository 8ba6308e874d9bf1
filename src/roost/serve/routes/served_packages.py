"""The packages that a server shows: those in the folders that it knows, each by an id that is no path."""

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
"""Of the slowest clock of a file system: what changed later than so long ago may change again unseen."""
_names_by_folder: dict[Path, tuple[int, dict[str, str]]] = {}
"""By folder: when it last changed, and its packages by the second part of their ids."""
_extra_folders: list[Path] = []


def add_folders(folders: Iterable[Path]) -> None:
    """Folders to show beside those that tasks were ever submitted from; that of a project stands for its
    ``runs``."""
    for folder in (path.resolve() for path in folders):
        _extra_folders.append(folder / "runs" if (folder / "runs").is_dir() else folder)


def folders() -> list[Path]:
    """All that are there, each once."""
    found = dict.fromkeys(
        [*_extra_folders, *(path.resolve() for path in package_roots.read(state_folder.lab_folder()))]
    )
    return [folder for folder in found if folder.is_dir()]


def run_id(package: Path | str) -> str:
    """What a client calls a package: it stays the same as long as the package lies where it lies, by whatever
    path it is reached."""
    path = Path(package)
    return run_id_in(path.parent.resolve(), path.name)


def run_id_in(folder: Path, name: str) -> str:
    """The same of a package in one of the `folders`."""
    return f"{_digest(str(folder), _ROOT_CHARACTERS)}-{_digest(name, _NAME_CHARACTERS)}"


def package_path(id: str) -> Path:
    """Where a package lies.

    Raises:
        NotFound: There is none of this id.
    """
    root, _, name = id.partition("-")
    for folder in folders():
        if _digest(str(folder), _ROOT_CHARACTERS) == root and (found := _package_names(folder).get(name)):
            path = folder / found
            if not path.is_symlink() and (path / "request.json").is_file():  # else it is no package of ours
                return path
    raise NotFound("there is no such run", received=id, fix="GET /api/v1/runs lists them")


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
