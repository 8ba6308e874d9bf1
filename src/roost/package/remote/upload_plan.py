"""Which checkpoints a remote copy keeps, and what an upload does: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import BestRule
from roost.package.remote.copy_index import CopiedFile, CopyIndex
from roost.package.remote.local_files import LocalFiles, Piece

_CHECKPOINTS = Path("Checkpoints")
KeepCount = int | Literal["all"]


class UploadPlan(NamedTuple):
    """What an upload does: put these objects, then write an index with these files, then delete."""

    puts: list[Piece]
    files: dict[str, CopiedFile]
    checkpoints: list[Manifest]
    step: int | None

    @property
    def num_bytes(self) -> int:
        """The size of the objects to put."""
        return sum(piece.size for piece in self.puts)


def kept_checkpoints(
    local: Sequence[Manifest], copied: Sequence[Manifest], *, keep: KeepCount, best: Sequence[BestRule]
) -> set[int]:
    """Returns the ids of the checkpoints that the copy is to have: the newest ones of the lineage and the
    best, of those that the package has and those that only the copy still has.

    Args:
        local: The checkpoints of the package.
        copied: Those of the copy.
        keep: How many of the newest; ``all``: all of them.
        best: The tracks of best checkpoints of the run.
    """
    known = {manifest.id: manifest for manifest in [*copied, *local]}
    if keep == "all":
        return set(known)
    line = retention.lineage(list(known.values()))
    found = {manifest.id for manifest in line[-max(keep, 1) :]}
    return found | {one.id for rule in best for one in retention.best_checkpoints(line, rule)}


def plan(
    local: LocalFiles, before: CopyIndex | None, *, present: Collection[str], kept: Collection[int]
) -> UploadPlan:
    """Returns what an upload does.

    Args:
        local: The package, with those of its checkpoints that the copy is to have.
        before: The newest index.
        present: The objects that the store certainly has.
        kept: As returned by `kept_checkpoints`.
    """
    files = dict(local.files)
    here = {manifest.id for manifest in local.checkpoints}
    old_files: Mapping[str, CopiedFile] = before.files if before is not None else {}
    only_copied = [
        one
        for one in (before.checkpoints if before is not None else [])
        if one.id in kept and one.id not in here
    ]
    for manifest in only_copied:
        folder = f"{checkpoint.checkpoint_folder(_CHECKPOINTS, manifest.id).as_posix()}/"
        files |= {name: file for name, file in old_files.items() if name.startswith(folder)}
    # Of a file that is being written the copy keeps the one before.
    files |= {name: old_files[name] for name in local.left_out if name in old_files}
    found = sorted([*local.checkpoints, *only_copied], key=lambda manifest: manifest.id)
    needed = dict.fromkeys(piece for file in files.values() for piece in file.pieces)
    puts = [local.pieces[name] for name in needed if name not in present and name in local.pieces]
    newest = retention.lineage(found)[-1:]
    return UploadPlan(puts, dict(sorted(files.items())), found, newest[0].step if newest else None)


def unneeded_objects(listed: Collection[str], indexes: Sequence[CopyIndex]) -> list[str]:
    """Returns the objects to which no index refers."""
    needed = {piece for index in indexes for file in index.files.values() for piece in file.pieces}
    return sorted(set(listed) - needed)
