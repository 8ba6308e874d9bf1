"""What is to be known of a step that failed."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from roost.base.errors import PeerLost, TrainingError
from roost.package.results.black_box import FailureNote
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.distributed.control_channel import ControlChannel
from roost.train.distributed.ranks import Ranks
from roost.train.failures.step_report import format_error
from roost.train.model.module_state import ModuleState

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def why_not_skippable(trainer: Trainer, window: Sequence[Any] | None, error: Exception) -> str:
    """Why a step that raised cannot be passed over; empty when it can.

    Args:
        trainer: Where it is.
        window: Its micro-batches; None when drawing them failed.
        error: What it raised.
    """
    if window is None and not trainer.loaders["train"].has_indices:
        return "what has no indices cannot pass over what it fails to give"
    if (
        window is not None
        and trainer.ranks.are_several
        and error is not trainer.stepper.gradients.agreed_error
    ):
        return "it came up outside of stepper.run, where the other ranks do not hear of it"
    if trainer.stepper.has_stepped:
        return "an optimizer had begun to move in this step already"
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "after such an error nothing can be computed on the device"
    return ""


def machine_cause(error: Exception) -> str:
    """What made the step fail, if it was the machine, which another time may not; empty if not, as far as is
    known."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: " in text:
        return "for want of memory"
    if isinstance(error, PeerLost):
        return "because another rank had failed" if error.is_transient else ""
    # Torch says so wherever the process is when one dies, also in the middle of a forward pass.
    if isinstance(error, WorkerDied) or text.startswith("DataLoader worker (pid"):
        return "because a loader worker was gone"
    return ""


def failure_code(error: Exception | None) -> int:
    """How a rank tells the others of what it raised: 0 for nothing; see `peer_error`."""
    return 0 if error is None else 1 + bool(machine_cause(error))


def machine_cause_on_any_rank(ranks: Ranks, error: Exception) -> str:
    """As `machine_cause`, where several ranks may have failed in one step, each by another error; all must
    call this."""
    codes = [code for [code] in ranks.control.exchange([failure_code(error)], "a step that failed").wait()]
    return machine_cause(error) or ("because another rank had failed" if max(codes) > 1 else "")


def gather_first_error(channel: ControlChannel, error: Exception | None) -> str:
    """What the first rank that failed has raised; all must call this.

    Args:
        channel: Of the training threads.
        error: What this rank has raised.
    """
    return next(
        filter(None, channel.gather(format_error(error) if error is not None else "", "a step that failed"))
    )


def peer_error(codes: Sequence[int], what: str) -> PeerLost:
    """What a rank that did not fail raises because another did.

    Args:
        codes: What the ranks have told, by `failure_code`.
        what: They failed at, in words.
    """
    rank = next(rank for rank, code in enumerate(codes) if code)
    error = PeerLost(f"rank {rank} {what}")
    error.is_transient = max(codes) > 1
    return error


def clear_traceback_frames(error: BaseException) -> None:
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


def is_epoch_empty(trainer: Trainer, note: FailureNote) -> bool:
    """Whether no sample was trained on in a whole epoch: none would be in the next ones."""
    return not trainer.progress.samples and note.step >= trainer.steps_per_epoch


def empty_epoch_error(why: str) -> TrainingError:
    """The error about an epoch without a sample.

    Args:
        why: What became of its steps.
    """
    return TrainingError(
        f"a whole epoch gave nothing to learn from: {why}", fix="look at what the set and its collate give"
    )


def describe_nonfinite_weights(trainer: Trainer) -> str:
    """Which weights are not finite, in words; empty when all are. A sync point."""
    try:
        ModuleState(trainer.runner).check_finite()
    except TrainingError as error:
        return error.message
    return ""
