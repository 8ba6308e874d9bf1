"""``du``: what packages take on the disk, by parts. For a file with several names see
`roost.operations.keeping.allocated_bytes`: the package that comes first is charged for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from roost.base.errors import RoostError
from roost.operations import work_progress
from roost.operations.keeping import allocated_bytes, prune, trash
from roost.operations.keeping.prune import PruneRequest
from roost.operations.keeping.staged_data import staged_archives
from roost.package import sessions
from roost.package.package import PackageFolder

_PARTS = {
    "Checkpoints": "checkpoints",
    "blackbox": "checkpoints",
    "records": "records",
    "media": "media",
    "profile": "media",
}


class PackageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that a package takes on the disk."""

    name: str
    path: str
    checkpoints: int
    """With the black boxes of failed steps."""
    records: int
    media: int
    """Pictures, sound and profiles."""
    code: int
    """The copy of the project."""
    other: int
    total: int
    prunable: int
    """What `roost prune --keep best,last` would free; without a best checkpoint ``--keep last``."""


class DiskUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that packages and the trash of their folders take on the disk."""

    packages: list[PackageUsage]
    """The largest first."""
    trash: int
    total: int
    """Of the packages, without the trash."""
    staged: int = 0
    """Of the staged archives of this machine, which no package holds."""


def disk_usage(packages: Sequence[Path]) -> DiskUsage:
    """Returns what packages take on the disk, and what is in the trash of their folders. What cannot be read
    counts as nothing."""
    seen: set[allocated_bytes.Inode] = set()
    found = [_package_usage(path, seen) for path in work_progress.track(packages, "measuring")]
    roots = dict.fromkeys(path.parent for path in packages)
    trashed = sum(allocated_bytes.folder_bytes(one, seen) for root in roots for one in trash.contents(root))
    found.sort(key=lambda one: (-one.total, one.path))
    return DiskUsage(
        packages=found,
        trash=trashed,
        total=sum(one.total for one in found),
        staged=sum(one.num_bytes for one in staged_archives()),
    )


def _package_usage(path: Path, seen: set[allocated_bytes.Inode]) -> PackageUsage:
    parts = dict.fromkeys(("checkpoints", "records", "media", "code", "other"), 0)
    code = _copied_names(path)
    for name, size in allocated_bytes.files(path, seen):
        part = "code" if name in code else _PARTS.get(name.partition("/")[0], "other")
        parts[part] += size
    return PackageUsage(
        name=path.name, path=str(path), total=sum(parts.values()), prunable=_prunable(path), **parts
    )


def _copied_names(path: Path) -> set[str]:
    files = (sessions.load_json(path / "manifest.json") or {}).get("files")
    return set(files) if isinstance(files, dict) else set()


def _prunable(path: Path) -> int:
    for keep in (("best", "last"), ("last",)):
        try:
            return prune.plan_one(PackageFolder(path), PruneRequest(keep=keep)).num_bytes
        except (RoostError, OSError):
            continue
    return 0
