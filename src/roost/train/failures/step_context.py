"""The parts of a trainer that the recovery from a failed step, and the reports about it, need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roost.train.checkpointing.checkpoints import Checkpoints, Stateful
from roost.train.data.batches import Batches
from roost.train.distributed.ranks import Ranks
from roost.train.progress import Progress

if TYPE_CHECKING:
    from roost.train.step.stepper import Stepper


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """What is needed to decide about a step that failed, to locate it in the data and to keep it."""

    runner: Any
    loader: Batches
    """The training set."""
    stepper: Stepper
    progress: Progress
    """Its position is that of the step before the one that is being taken."""
    steps_per_epoch: int
    ranks: Ranks
    checkpoints: Checkpoints | None
    inexact: Sequence[str]
    """Why the run is not exact, as far as is known."""
    note_inexact: Callable[[str], None]
    """Adds a reason to `inexact`, and prints it."""
    last_finite: tuple[int, float] | None
    """The step and ``train/loss`` of the newest row with a finite loss; None before the first row of a
    session."""
    parts: Callable[[], Mapping[str, Stateful]]
    """Returns all that a checkpoint of the run holds, by name."""
