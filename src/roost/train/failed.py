"""What is to be known of a step that failed."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from roost.base.errors import TrainingError
from roost.package.blackbox import Note
from roost.train.data.deaths import WorkerDied
from roost.train.module_state import ModuleState

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def why_not(trainer: Trainer, window: Sequence[Any] | None, error: Exception) -> str:
    """Why a step that raised cannot be passed over; empty when it can.

    Args:
        trainer: Where it is.
        window: Its micro-batches; None when drawing them failed.
        error: What it raised.
    """
    if window is None and not trainer.loaders["train"].has_indices:
        return "what has no indices cannot pass over what it fails to give"
    if trainer.stepper.has_moved:
        return "an optimizer had begun to move in this step already"
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "after such an error nothing can be computed on the device"
    return ""


def by_the_machine(error: Exception) -> str:
    """What made the step fail, if it was the machine, which another time may not; empty if not, as far as is
    known."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: " in text:
        return "for want of memory"
    # Torch says so wherever the process is when one dies, also in the middle of a forward pass.
    if isinstance(error, WorkerDied) or text.startswith("DataLoader worker (pid"):
        return "because a loader worker was gone"
    return ""


def free(error: BaseException) -> None:
    """Lets go of what the frames of a failed step hold, as large as the step itself; also where an error has
    become another one."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def has_seen_nothing(trainer: Trainer, note: Note) -> bool:
    """Whether no sample was trained on in a whole epoch: none would be in the next ones."""
    return not trainer.progress.samples and note.step >= trainer.steps_per_epoch


def nothing_seen(why: str) -> TrainingError:
    """The error about an epoch without a sample.

    Args:
        why: What became of its steps.
    """
    return TrainingError(
        f"a whole epoch gave nothing to learn from: {why}", fix="look at what the set and its collate give"
    )


def broken(trainer: Trainer) -> str:
    """Which weights are not finite, in words; empty when all are. A sync point."""
    try:
        ModuleState(trainer.runner).check_finite()
    except TrainingError as error:
        return error.message
    return ""
