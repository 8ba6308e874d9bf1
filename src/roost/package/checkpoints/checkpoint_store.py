"""A folder of checkpoints: which line leads to now, the newest good one, the next id."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest

T = TypeVar("T")
_MAX_STEPS_SHOWN = 20


def format_steps(found: Iterable[Manifest]) -> str:
    """The steps of checkpoints in words, the newest first."""
    all_steps = sorted({info.step for info in found}, reverse=True)
    more = len(all_steps) - _MAX_STEPS_SHOWN
    named = ", ".join(map(str, all_steps[:_MAX_STEPS_SHOWN]))
    return f"step {named}" + (f" and {more} before" if more > 0 else "") if all_steps else "none"


class CheckpointStore:
    """The checkpoints below ``folder``.

    Args:
        folder: A package's ``Checkpoints``, or any folder.
        tip: The checkpoint that the run goes on from although newer ones exist (``continue -c K`` before
            its first save); the newest one when None.
    """

    def __init__(self, folder: Path, *, tip: int | None = None) -> None:
        self.folder, self._tip = folder, tip

    def line(self) -> list[Manifest]:
        """The checkpoints that lead to where the run is now, oldest first."""
        return retention.lineage(checkpoint.read_manifests(self.folder), tip=self._tip)

    def path(self, id: int) -> Path:
        """The folder of checkpoint ``id``.

        Raises:
            NotFound: There is none.
        """
        path = checkpoint.checkpoint_folder(self.folder, id)
        if not path.is_dir():
            have = ", ".join(str(n) for n in checkpoint.ids(self.folder)) or "none"
            raise NotFound(f"there is no checkpoint {id}; there are: {have}", where=self.folder.parent)
        return path

    def at_step(self, step: int) -> Manifest:
        """The checkpoint of a step: of the line that leads to now where it has one, else the newest.

        Raises:
            NotFound: There is none; names the steps at which one stands, the newest first.
        """
        found = checkpoint.read_manifests(self.folder)
        of_step = [info for info in found if info.step == step]
        if not of_step:
            damaged = sorted(set(checkpoint.ids(self.folder)) - {info.id for info in found})
            said = f"there is no checkpoint of step {step}; there are: {format_steps(found)}"
            if damaged:
                said += (
                    f"; damaged: {', '.join(checkpoint.checkpoint_folder(self.folder, id).name for id in damaged)}"
                )
            raise NotFound(said, where=self.folder.parent)
        line = {info.id for info in self.line()}
        return max(of_step, key=lambda info: (info.id in line, info.id))

    def newest_good(self, load: Callable[[Path], T]) -> tuple[T | None, list[str]]:
        """Loads the newest checkpoint of the line whose every byte is as written.

        Damaged ones are set aside, so only the holder of the package's lock may call this. Any other error
        is raised and changes nothing: a good checkpoint may need a newer roost, another torch, or a disk that
        answers, and to go on from an older one would throw away what it holds.

        Args:
            load: Reads one checkpoint, and raises `Damaged` when its bytes are not those that were written.

        Returns:
            What ``load`` gave, None when there is no checkpoint; and a line for each that was set aside.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged; or what ``load`` raises.
        """
        said: list[str] = []
        candidates = self.candidates()
        for id in candidates:
            path = checkpoint.checkpoint_folder(self.folder, id)
            try:
                return load(path), said
            except Damaged as error:
                aside = checkpoint.set_aside(path)
                said.append(f"{error.message}; set aside as {aside.name}, the one before it is tried")
        self._refuse_none(said)
        return None, said

    def newest_readable(self, load: Callable[[Path], T]) -> tuple[T | None, list[str]]:
        """As `newest_good`, for whoever only looks: damaged ones are passed over and nothing on the disk is
        changed. A run that goes on meanwhile may remove what is being read; then a newer one stands.

        Returns:
            What ``load`` gave, None when there is no checkpoint; and a line for each that was passed over.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged; or what ``load`` raises.
        """
        said: list[str] = []
        tried: set[int] = set()
        while waiting := [id for id in self.candidates() if id not in tried]:  # a new look: newer ones come
            tried.add(waiting[0])
            path = checkpoint.checkpoint_folder(self.folder, waiting[0])
            try:
                return load(path), said
            except (Damaged, NotFound, FileNotFoundError) as error:
                if path.exists():  # else its run removed it just now
                    said.append(f"{error}; passed over, the one before it is tried")
        self._refuse_none(said)
        return None, said

    def _refuse_none(self, said: list[str]) -> None:
        """Where checkpoints stood and none is good: to begin at step 0, also the second time, would bury
        what was there."""
        lost = checkpoint.set_aside_names(self.folder)
        if said or lost:
            raise CheckpointError(
                f"no good checkpoint is left: {'; '.join(said) or ', '.join(lost)}",
                where=self.folder.parent,
                fix="start anew with `roost run`, or bring a good copy of one back under its name",
            )

    def candidates(self) -> list[int]:
        """Ids to try, newest first. Where a manifest is damaged nobody knows the line: it is tried too, and
        set aside. What is newer than the one that the run was told to go on from is left alone."""
        limit = math.inf if self._tip is None else self._tip
        readable = [info for info in checkpoint.read_manifests(self.folder) if info.id <= limit]
        known = {info.id for info in readable}
        unknown = [n for n in checkpoint.ids(self.folder) if n <= limit and n not in known]
        return sorted([*unknown, *(info.id for info in retention.lineage(readable))], reverse=True)
