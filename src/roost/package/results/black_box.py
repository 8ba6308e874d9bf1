"""The black boxes of a package: the steps at which its sessions failed, each with the state and batch needed
to replay it. Reading needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from roost.base.errors import CheckpointError, NotFound
from roost.package.checkpoints import checkpoint

STATE = ("model", "optimizers", "trainer", "rank-0")
"""The parts that a black box must have to contain a state."""
BATCH, NOTE = "batch", "note"
_MAX_SAMPLES_SHOWN = 8
"""The number of samples named in the location of a step."""


class FailureNote(msgspec.Struct, frozen=True, kw_only=True):
    """The failed step and its error. Every black box has one."""

    step: int
    """The number that the failed step would have had."""
    epoch: int
    """The number of finished epochs before it."""
    batch: int
    """The number of its first micro-batch in the epoch."""
    num_batches: int = 1
    samples: list[int] = []
    """Indices in the training set; empty if it has no indices."""
    kind: Literal["error", "nonfinite", "rollback", "empty"] = "error"
    error: str = ""
    """One line."""
    session: int = 0
    checkpoint: int | None = None
    """The checkpoint to replay from; None: the beginning of the run."""
    inexact: list[str] = []
    """Reasons why the stored state or batch may differ from the original."""
    left_out: list[str] = []
    """The parts that could not be stored, each with the reason."""
    stack: dict[str, Any] = {}
    """The stack on which it failed, as `roost.package.resume.environment.stack` returns it."""

    @property
    def location(self) -> str:
        """The position in the data, counted from 1: ``epoch 3, batch 12, samples 18, 244``."""
        several, first = self.num_batches > 1, self.batch + 1
        batches = f"{self.num_batches} batches from {first}" if several else f"batch {first}"
        named = [str(one) for one in self.samples[:_MAX_SAMPLES_SHOWN]]
        if len(self.samples) > _MAX_SAMPLES_SHOWN:
            named.append(f"… {len(self.samples)} in all")
        samples = f", samples {', '.join(named)}" if named else ""
        return f"epoch {self.epoch + 1}, {batches}{samples}"


class BlackBox(NamedTuple):
    """A stored failed step: its folder, note and parts."""

    path: Path
    note: FailureNote
    has_state: bool
    has_batch: bool


class DebugTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The step that `roost debug` runs again, and how: passed from the command to its worker."""

    step: int
    session: int
    """The session whose settings are used."""
    box: str | None = None
    """The name of the step's black box; None: no failure of it is known."""
    checkpoint: int | None = None
    """The checkpoint to replay from."""
    replay: bool = False
    """Whether to run the steps from the checkpoint again, even if the black box has a state."""
    begin: bool = False
    """Whether to stop before the step, instead of at its failure."""
    device: str = "auto"
    project: str = ""


def read_boxes(folder: Path) -> Iterator[BlackBox]:
    """Yields the black boxes in ``folder``, the newest first; damaged ones are skipped."""
    for id in reversed(checkpoint.ids(folder) if folder.is_dir() else []):
        path = checkpoint.checkpoint_folder(folder, id)
        try:
            manifest, states = checkpoint.read(path, only=[NOTE], to="numpy")
            note = msgspec.convert(states[NOTE], FailureNote)
        except (CheckpointError, NotFound, OSError, msgspec.ValidationError):
            continue  # also one that a session has just replaced by a newer one
        parts = checkpoint.part_names(manifest)
        yield BlackBox(path, note, all(name in parts for name in STATE), BATCH in parts)


def find_box(folder: Path, name: str) -> BlackBox:
    """Returns the black box with a name.

    Raises:
        NotFound: It does not exist, or is damaged.
    """
    found = next((box for box in read_boxes(folder) if box.path.name == name), None)
    if found is None:
        raise NotFound(f"the black box {name} does not exist, or cannot be read", where=folder)
    return found


def newest_box(folder: Path) -> BlackBox | None:
    """Returns the newest black box; None without one."""
    return next(read_boxes(folder), None)


def newest_box_of_step(folder: Path, step: int) -> BlackBox | None:
    """Returns the newest black box of a step; None without one."""
    return next((box for box in read_boxes(folder) if box.note.step == step), None)
