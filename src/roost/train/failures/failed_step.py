"""Questions about a failed step: whether it can be skipped, what caused it, what the other ranks must
know."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from roost.base.errors import PeerLost, TrainingError
from roost.package.results.black_box import FailureNote
from roost.train.accelerators.device_errors import breaks_device
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.distributed.control_channel import ControlChannel
from roost.train.distributed.ranks import Ranks
from roost.train.failures.step_context import StepContext
from roost.train.failures.step_report import format_error
from roost.train.model.module_state import ModuleState


def why_not_skippable(context: StepContext, window: Sequence[Any] | None, error: Exception) -> str:
    """Why a step that raised cannot be skipped; empty if it can.

    Args:
        context: The surroundings of the step.
        window: The micro-batches of the step; None if drawing them failed.
        error: The error of the step.
    """
    if window is None and not context.loader.has_indices:
        return "a set without indices cannot go past a sample that it fails to give"
    if (
        window is not None
        and context.ranks.are_several
        and error is not context.stepper.gradients.agreed_error
    ):
        return "it was raised outside of stepper.run, where the other ranks do not learn of it"
    if context.stepper.has_stepped:
        return "an optimizer had already changed weights in this step"
    if breaks_device(error):
        return "after such an error the device cannot compute any more"
    return ""


def machine_cause(error: Exception) -> str:
    """The cause of a failure that lies in the machine and may not occur again, in words that follow "the step
    failed"; empty for any other error, as far as is known."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: " in text:
        return "because memory ran out"
    if isinstance(error, PeerLost):
        return "because another rank had failed" if error.is_transient else ""
    # torch raises this wherever the process is when a loader worker dies, also within a forward pass.
    if isinstance(error, WorkerDied) or text.startswith("DataLoader worker (pid"):
        return "because a loader worker had died"
    return ""


def failure_code(error: Exception | None) -> int:
    """The code of an error in messages to the other ranks: 0 for no error, 2 if the machine caused it, else
    1."""
    return 0 if error is None else 1 + bool(machine_cause(error))


def machine_cause_on_any_rank(ranks: Ranks, error: Exception) -> str:
    """As `machine_cause`, for a step in which several ranks may have failed by different errors. All ranks
    must call it."""
    codes = [code for [code] in ranks.control.exchange([failure_code(error)], "a step that failed").wait()]
    return machine_cause(error) or ("because another rank had failed" if max(codes) > 1 else "")


def gather_first_error(channel: ControlChannel, error: Exception | None) -> str:
    """The error of the first rank that failed, as text. All ranks must call it.

    Args:
        channel: The control channel of the training threads.
        error: The error of this rank; None if it did not fail.
    """
    return next(
        filter(None, channel.gather(format_error(error) if error is not None else "", "a step that failed"))
    )


def peer_error(codes: Sequence[int], what: str) -> PeerLost:
    """The error that a rank raises because another rank failed.

    Args:
        codes: The `failure_code` of each rank.
        what: The failure, in words that follow "rank 1": "could not draw its batches".
    """
    rank = next(rank for rank, code in enumerate(codes) if code)
    error = PeerLost(f"rank {rank} {what}")
    error.is_transient = max(codes) > 1
    return error


def clear_traceback_frames(error: BaseException) -> None:
    """Frees the local variables in the frames of a failed step, which hold as much memory as the step itself;
    follows the causes and contexts of the error."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def is_epoch_empty(context: StepContext, note: FailureNote) -> bool:
    """Whether a whole epoch trained on no sample; then the next epochs would not either."""
    return not context.progress.samples and note.step >= context.steps_per_epoch


def empty_epoch_error(why: str) -> TrainingError:
    """The error of an epoch without a sample.

    Args:
        why: Why its steps had none.
    """
    return TrainingError(
        f"a whole epoch trained on no sample: {why}", fix="check what the set and its collate return"
    )


def describe_nonfinite_weights(runner: nn.Module) -> str:
    """The weights that are not finite, as text; empty if all are finite. A sync point."""
    try:
        ModuleState(runner).check_finite()
    except TrainingError as error:
        return error.message
    return ""
