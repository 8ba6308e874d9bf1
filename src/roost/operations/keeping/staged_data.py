"""The staged archives of a machine: what they take on the disk, and the removal of those that no run uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost.base.errors import NotFound
from roost.project.staging import staging_folder
from roost.project.staging.staging_cache import StagingCache


class StagedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A staged archive on this machine."""

    folder: str
    """The staging folder."""
    sha256: str
    archive: str
    """Where it was read."""
    num_bytes: int
    last_used: float
    in_use: bool
    """Whether a process uses it; it is not removed."""


def staged_archives(scratch: Sequence[Path] = ()) -> list[StagedUsage]:
    """Returns the staged archives in scratch folders, the least recently used first.

    Args:
        scratch: Values of ``data.stage.to``; by default the folder that is used without it.

    Raises:
        NotFound: A folder that is named does not exist.
    """
    for folder in scratch:
        if not folder.is_dir():
            fix = "name the folder that data.stage.to names"
            raise NotFound("there is no such folder", received=str(folder), fix=fix)
    folders = [staging_folder.staging_folder(str(one)) for one in scratch] or [
        staging_folder.staging_folder()
    ]
    return [
        StagedUsage(
            folder=str(folder),
            sha256=one.sha256,
            archive=one.archive,
            num_bytes=one.num_bytes,
            last_used=one.last_used,
            in_use=one.in_use,
        )
        for folder in folders
        for one in StagingCache(folder).entries()
    ]


def remove_staged(archives: Sequence[StagedUsage]) -> Iterator[tuple[StagedUsage, bool]]:
    """Removes staged archives; yields each, and whether it was removed: one that a process uses is not."""
    for one in archives:
        yield one, StagingCache(Path(one.folder)).remove(one.sha256)
