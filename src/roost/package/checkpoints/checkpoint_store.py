"""A folder of checkpoints: the lineage of the current state, and loading the newest good checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest

T = TypeVar("T")
_MAX_STEPS_SHOWN = 20


def format_steps(found: Iterable[Manifest]) -> str:
    """Returns the steps of checkpoints for a message, the newest first."""
    all_steps = sorted({manifest.step for manifest in found}, reverse=True)
    more = len(all_steps) - _MAX_STEPS_SHOWN
    named = ", ".join(map(str, all_steps[:_MAX_STEPS_SHOWN]))
    return f"step {named}" + (f" and {more} before" if more > 0 else "") if all_steps else "none"


class CheckpointStore:
    """The checkpoints below ``folder``.

    Args:
        folder: A package's ``Checkpoints``, or any folder.
        tip: The checkpoint from which the run continues although newer ones exist (``continue -c K`` before
            its first save); None: the newest.
    """

    def __init__(self, folder: Path, *, tip: int | None = None) -> None:
        self.folder, self._tip = folder, tip

    def lineage(self) -> list[Manifest]:
        """Returns the checkpoints that lead to the current state of the run, the oldest first."""
        return retention.lineage(checkpoint.read_manifests(self.folder), tip=self._tip)

    def path(self, id: int) -> Path:
        """Returns the folder of checkpoint ``id``.

        Raises:
            NotFound: The checkpoint does not exist.
        """
        path = checkpoint.checkpoint_folder(self.folder, id)
        if not path.is_dir():
            have = ", ".join(str(n) for n in checkpoint.ids(self.folder)) or "none"
            raise NotFound(f"there is no checkpoint {id}; there are: {have}", where=self.folder.parent)
        return path

    def at_step(self, step: int) -> Manifest:
        """Returns the checkpoint of a step: the one in the current lineage if there is one, else the newest.

        Raises:
            NotFound: There is none; the message names the steps of the existing ones, the newest first.
        """
        found = checkpoint.read_manifests(self.folder)
        of_step = [manifest for manifest in found if manifest.step == step]
        if not of_step:
            damaged = sorted(set(checkpoint.ids(self.folder)) - {manifest.id for manifest in found})
            message = f"there is no checkpoint of step {step}; there are: {format_steps(found)}"
            if damaged:
                names = [checkpoint.checkpoint_folder(self.folder, id).name for id in damaged]
                message += f"; damaged: {', '.join(names)}"
            raise NotFound(message, where=self.folder.parent)
        lineage = {manifest.id for manifest in self.lineage()}
        return max(of_step, key=lambda manifest: (manifest.id in lineage, manifest.id))

    def newest_good(self, load: Callable[[Path], T]) -> tuple[T | None, list[str]]:
        """Loads the newest checkpoint of the lineage that is not damaged.

        Damaged ones are set aside, so only the holder of the package's lock may call this. Any other error is
        raised and changes nothing: a good checkpoint may need a newer roost, another torch, or a disk that
        answers, and continuing from an older one would lose its progress.

        Args:
            load: Reads one checkpoint, and raises `Damaged` if its bytes are not those that were written.

        Returns:
            The result of ``load``, None without a checkpoint; and a line for each one that was set aside.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged; or any error of ``load``.
        """
        notes: list[str] = []
        candidates = self.candidates()
        for id in candidates:
            path = checkpoint.checkpoint_folder(self.folder, id)
            try:
                return load(path), notes
            except Damaged as error:
                renamed = checkpoint.set_aside(path)
                notes.append(f"{error.message}; set aside as {renamed.name}, trying the previous one")
        self._require_some_good(notes)
        return None, notes

    def newest_readable(self, load: Callable[[Path], T]) -> tuple[T | None, list[str]]:
        """Loads like `newest_good`, for readers: damaged checkpoints are skipped, and nothing on the disk is
        changed. A run that continues meanwhile may remove the checkpoint being read; then a newer one exists.

        Returns:
            The result of ``load``, None without a checkpoint; and a line for each one that was skipped.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged; or any error of ``load``.
        """
        notes: list[str] = []
        tried: set[int] = set()
        while waiting := [id for id in self.candidates() if id not in tried]:
            for id in waiting:
                tried.add(id)
                path = checkpoint.checkpoint_folder(self.folder, id)
                try:
                    return load(path), notes
                except (Damaged, NotFound, FileNotFoundError) as error:
                    if not path.exists():  # its run has just removed it: there is a newer one
                        break
                    notes.append(f"{error}; skipped, trying the previous one")
        self._require_some_good(notes)
        return None, notes

    def _require_some_good(self, notes: list[str]) -> None:
        """Refuses if there were checkpoints and none is good: beginning at step 0 instead, now or at the next
        attempt, would hide the loss."""
        lost = checkpoint.set_aside_names(self.folder)
        if notes or lost:
            raise CheckpointError(
                f"no good checkpoint is left: {'; '.join(notes) or ', '.join(lost)}",
                where=self.folder.parent,
                fix="start a new run with `roost run`, or restore a good copy of one under its name",
            )

    def refuse_restart_from_zero(self, kept: Collection[int]) -> None:
        """Refuses to begin at step 0 if the package had checkpoints and all are gone: the run would be
        replaced without notice.

        Args:
            kept: The ids of the checkpoints after the last save.

        Raises:
            CheckpointError: There were checkpoints.
        """
        self._require_some_good([])
        if kept:
            raise CheckpointError(
                f"the package had checkpoints ({', '.join(map(str, sorted(kept)))}) and has none now",
                where=self.folder.parent,
                fix="restore them, or start a new run with `roost run`",
            )

    def candidates(self) -> list[int]:
        """Returns the ids to try, the newest first. A checkpoint with a damaged manifest, whose lineage is
        unknown, is included, and will be set aside. Checkpoints newer than the requested ``tip`` are left
        out."""
        limit = math.inf if self._tip is None else self._tip
        readable = [manifest for manifest in checkpoint.read_manifests(self.folder) if manifest.id <= limit]
        known = {manifest.id for manifest in readable}
        unknown = [n for n in checkpoint.ids(self.folder) if n <= limit and n not in known]
        return sorted([*unknown, *(manifest.id for manifest in retention.lineage(readable))], reverse=True)
