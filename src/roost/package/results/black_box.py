"""The black box of a package: the steps at which its sessions failed, each with what is needed to go there
again. Reading needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from roost.base.errors import CheckpointError, NotFound
from roost.package.checkpoints import checkpoint

STATE = ("model", "optimizers", "trainer", "rank-0")
"""Without all of these a box holds no state."""
BATCH, NOTE = "batch", "note"
_MAX_SAMPLES_SHOWN = 8
"""As many are named where a step is told."""


class FailureNote(msgspec.Struct, frozen=True, kw_only=True):
    """Which step failed, and how. A box always has it."""

    step: int
    """The failing one, counted as the step it would have become."""
    epoch: int
    """Finished epochs before it."""
    batch: int
    """Number of its first micro-batch in the epoch."""
    num_batches: int = 1
    samples: list[int] = []
    """Indices of the training set; none where it has no indices."""
    kind: Literal["error", "nonfinite", "rollback", "empty"] = "error"
    error: str = ""
    """One line."""
    session: int = 0
    checkpoint: int | None = None
    """The checkpoint to replay from; None: the run's beginning."""
    inexact: list[str] = []
    """Why what is kept may not be exactly what there was."""
    left_out: list[str] = []
    """What could not be kept, and why."""
    stack: dict[str, Any] = {}
    """Where it failed, as `roost.package.environment.stack` tells it."""

    @property
    def place(self) -> str:
        """Where in the data, counted from 1 for people: ``epoch 3, batch 12, samples 18, 244``."""
        several, first = self.num_batches > 1, self.batch + 1
        batches = f"{self.num_batches} batches from {first}" if several else f"batch {first}"
        named = [str(one) for one in self.samples[:_MAX_SAMPLES_SHOWN]]
        if len(self.samples) > _MAX_SAMPLES_SHOWN:
            named.append(f"… {len(self.samples)} in all")
        samples = f", samples {', '.join(named)}" if named else ""
        return f"epoch {self.epoch + 1}, {batches}{samples}"


class BlackBox(NamedTuple):
    """One failed step."""

    path: Path
    note: FailureNote
    has_state: bool
    has_batch: bool


class DebugTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Which step `roost debug` goes to, and how: what the command tells the process that goes there."""

    step: int
    session: int
    """The settings are those of this session."""
    box: str | None = None
    """Name of the step's box; None: nothing is known of a failure in it."""
    checkpoint: int | None = None
    """Replay from this one."""
    replay: bool = False
    """Take the steps before it once more, whatever state the box holds."""
    begin: bool = False
    """Stop before the step, not where it fails."""
    device: str = "auto"
    project: str = ""


def read_boxes(folder: Path) -> Iterator[BlackBox]:
    """The boxes below ``folder``, the newest first; a damaged one is passed over."""
    for id in reversed(checkpoint.ids(folder) if folder.is_dir() else []):
        path = checkpoint.checkpoint_folder(folder, id)
        try:
            info, states = checkpoint.read(path, only=[NOTE], to="numpy")
            note = msgspec.convert(states[NOTE], FailureNote)
        except (CheckpointError, NotFound, OSError, msgspec.ValidationError):
            continue  # or removed meanwhile, by a session that keeps a newer one
        parts = checkpoint.part_names(info)
        yield BlackBox(path, note, all(name in parts for name in STATE), BATCH in parts)


def find_box(folder: Path, name: str) -> BlackBox:
    """The box of that name.

    Raises:
        NotFound: There is none, or it is damaged.
    """
    found = next((box for box in read_boxes(folder) if box.path.name == name), None)
    if found is None:
        raise NotFound(f"there is no black box {name} that can be read", where=folder)
    return found


def newest_box(folder: Path) -> BlackBox | None:
    """The newest box, None without one."""
    return next(read_boxes(folder), None)


def newest_box_of_step(folder: Path, step: int) -> BlackBox | None:
    """The newest box of that step, None without one."""
    return next((box for box in read_boxes(folder) if box.note.step == step), None)
