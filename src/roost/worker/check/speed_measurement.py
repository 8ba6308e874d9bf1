"""The speed of a run, measured by a few steps and batches."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Literal

import torch

from roost.train.accelerators.registry import accelerator_of
from roost.train.data.batches import Batches
from roost.train.end_condition import EndCondition
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.trainer import Trainer
from roost.worker.check.short_run import known_length
from roost.worker.check.stages import output_suppressed

MEASUREMENT_LIMIT = EndCondition(steps=20, seconds=1.0)
"""Limit of the measured steps: the first of both, but at least one step."""


class StepClock(Hook):
    """Records the time at the end of each step."""

    phase = Phase.MODEL

    def __init__(self) -> None:
        self._at: list[float] = []

    def before_step(self, trainer: Trainer) -> None:
        if not self._at:
            self._at.append(perf_counter())

    def on_step(self, trainer: Trainer) -> None:
        accelerator_of(trainer.runner.device).synchronize()
        self._at.append(perf_counter())

    @property
    def step_seconds(self) -> float:
        """Mean time of a step with its data, without the first step, which starts the loader workers (unless
        it is the only one)."""
        first = 1 if len(self._at) > 2 else 0
        return (self._at[-1] - self._at[first]) / max(1, len(self._at) - 1 - first)


def step_seconds(trainer: Trainer, train: Batches) -> float:
    """Measures the seconds of a step with its data. Takes steps, so the weights change.

    Args:
        trainer: Must have taken steps already, so that one-time work is not measured.
        train: The unshortened loader of the run.
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


def step_seconds_on_one_thread(trainer: Trainer, train: Batches) -> float | None:
    """Measures `step_seconds` with one CPU thread, which small models compute faster, above all on a busy
    machine; None if there is one thread in any case, or if another device computes.

    Args:
        trainer: See `step_seconds`.
        train: See `step_seconds`.
    """
    threads = torch.get_num_threads()
    if threads == 1 or trainer.runner.device.type != "cpu":
        return None
    torch.set_num_threads(1)
    try:
        return step_seconds(trainer, train)
    finally:
        torch.set_num_threads(threads)


def _recovery(trainer: Trainer) -> Recovery:
    """Returns the run's recovery policy, with skip instead of rollback, because there is no checkpoint."""
    given = trainer.recovery
    policy: Literal["stop", "skip"] = "stop" if given.on_non_finite == "stop" else "skip"
    return Recovery(on_non_finite=policy, on_step_error=given.on_step_error)


def evaluation_seconds(trainer: Trainer, whole: Mapping[str, Batches], split: str) -> float:
    """Estimates the seconds of an evaluation of all sets of a split, from the few batches of the shortened
    trainer. A set of unknown length counts only with these few batches.

    Args:
        trainer: Shortened by `roost.worker.check.short_run.shorten`.
        whole: Its loaders before that.
        split: valid or test.
    """
    seconds = 0.0
    for name, loader in trainer.loaders.items():
        if name.partition("/")[0] == split:
            started = perf_counter()
            with output_suppressed():
                trainer.evaluate(name)
            num_batches = known_length(whole[name]) or len(loader)
            seconds += (perf_counter() - started) * num_batches / len(loader)
    return seconds
