"""How fast a run will be, by a few steps of it."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Literal

import torch

from roost.train.data.batches import Batches
from roost.train.end_condition import EndCondition
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.trainer import Trainer
from roost.worker.check.data_excerpt import ObservedBatches, known_length
from roost.worker.check.stages import output_suppressed

MEASUREMENT_LIMIT = EndCondition(steps=20, seconds=1.0)
"""How many steps are measured: whichever comes first, but at least one."""


class StepClock(Hook):
    """Notices when each step ends."""

    phase = Phase.MODEL

    def __init__(self) -> None:
        self._at: list[float] = []

    def before_step(self, trainer: Trainer) -> None:
        if not self._at:
            self._at.append(perf_counter())

    def on_step(self, trainer: Trainer) -> None:
        if trainer.runner.device.type == "cuda":
            torch.cuda.synchronize()
        self._at.append(perf_counter())

    @property
    def step_seconds(self) -> float:
        """The mean of a step with its data; the first one, which starts the workers, only if it is alone."""
        first = 1 if len(self._at) > 2 else 0
        return (self._at[-1] - self._at[first]) / max(1, len(self._at) - 1 - first)


def step_seconds(trainer: Trainer, train: Batches) -> float:
    """The seconds of a step with its data. Takes steps, so the weights change.

    Args:
        trainer: Has taken steps before, so that what happens once is not measured.
        train: Draws the batches of the whole run.
    """
    clock = StepClock()
    with output_suppressed():
        Trainer(
            trainer.runner,
            {"train": train},
            trainer.stepper,
            hooks=[clock],
            until=MEASUREMENT_LIMIT,
            seed=trainer.seed,
            recovery=_recovery(trainer),
        ).fit()
    return clock.step_seconds


def _recovery(trainer: Trainer) -> Recovery:
    """Skips what the run would skip; where it would roll back it skips, too, for want of a checkpoint."""
    given = trainer.recovery
    policy: Literal["stop", "skip"] = "stop" if given.on_non_finite == "stop" else "skip"
    return Recovery(on_non_finite=policy, on_step_error=given.on_step_error)


def evaluation_seconds(trainer: Trainer, whole: Mapping[str, Batches], split: str) -> float:
    """The seconds of evaluating all sets of a split, estimated from the few batches that are left of each; of
    a set of which nobody knows how many it has, those of these few.

    Args:
        trainer: Shortened, see `excerpt.shorten`.
        whole: Its loaders before that.
        split: valid or test.
    """
    seconds = 0.0
    for name, loader in trainer.loaders.items():
        if name.partition("/")[0] == split and isinstance(loader, ObservedBatches):
            begun = perf_counter()
            with output_suppressed():
                trainer.evaluate(name)
            num_batches = known_length(whole[name]) or len(loader)
            seconds += (perf_counter() - begun) * num_batches / len(loader)
    return seconds
