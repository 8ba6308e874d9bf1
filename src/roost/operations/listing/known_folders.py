"""The folders of packages that roost knows: those that were listed, and those of tasks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from roost.base.system import state_folder
from roost.lab.queue import package_roots
from roost.operations.cache_folder import cache_folder
from roost.operations.listing.list_packages import entries


class _IndexName(msgspec.Struct, array_like=True):
    format: int
    folder: str


def known_folders() -> list[Path]:
    """Returns the folders that hold packages now, sorted."""
    found = set(package_roots.read(state_folder.lab_folder()))
    for file in (cache_folder() / "ls").glob("*.json"):
        with suppress(OSError, msgspec.MsgspecError):
            found.add(Path(msgspec.json.decode(file.read_bytes(), type=_IndexName).folder))
    return sorted(folder for folder in found if folder.is_dir() and _has_packages(folder))


def _has_packages(folder: Path) -> bool:
    try:
        return bool(entries(folder))
    except OSError:
        return False
