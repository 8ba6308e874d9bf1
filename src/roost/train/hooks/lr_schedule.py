"""The hook that steps the learning-rate schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from roost.base.interval import NEVER
from roost.train.hook import Hook, Phase
from roost.train.hooks.monitor import monitored_value
from roost.train.optim.schedulers import Warmup, check_loaded_length

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Schedule(Hook):
    """Steps each scheduler by its own unit, a warm-up by steps. The schedulers' state is saved by their
    optimizers."""

    phase = Phase.SCHEDULE

    def monitors(self, trainer: Trainer) -> dict[str, str]:
        named = trainer.stepper.optimizers.items()
        return {_setting(name): optim.monitor for name, optim in named if optim.monitor is not None}

    def on_start(self, trainer: Trainer) -> None:
        """Checks that no schedule, as loaded, is shorter than the rest of the run.

        Raises:
            ConfigError: One is.
        """
        step, total = trainer.progress.step, trainer.total_steps
        if step and total < NEVER:
            per_epoch = trainer.steps_per_epoch
            check_loaded_length(
                trainer.stepper.optimizers,
                remaining_steps=total - step,
                remaining_epochs=total // per_epoch - step // per_epoch,
            )

    def on_step(self, trainer: Trainer) -> None:
        for optim in trainer.stepper.optimizers.values():
            optim.rates_before = optim.rates  # for the row of this step, which comes after the scheduler
            if isinstance(optim.scheduler, Warmup):
                optim.scheduler.advance_warmup()
        self._step(trainer, "step")

    def on_epoch(self, trainer: Trainer) -> None:
        self._step(trainer, "epoch")

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        for name, optim in trainer.stepper.optimizers.items():
            if optim.scheduler is not None and optim.unit == "validation":
                if optim.monitor is None:
                    optim.scheduler.step()
                else:
                    optim.scheduler.step(monitored_value(results, optim.monitor, setting=_setting(name)))

    def _step(self, trainer: Trainer, unit: str) -> None:
        for optim in trainer.stepper.optimizers.values():
            if optim.scheduler is not None and optim.unit == unit:
                optim.scheduler.step()


def _setting(name: str) -> str:
    return f"optimizers.{name}.scheduler.monitor"
