"""What a LightningModule may ask ``self.trainer``: positions and lengths of the run, read from roost's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from roost.base.interval import NEVER

if TYPE_CHECKING:
    from roost.project.lightning.lightning_runner import LightningRunner


class TrainerView:
    """Takes the place of Lightning's trainer in a module.

    Args:
        runner: The Runner whose module asks.
    """

    def __init__(self, runner: LightningRunner) -> None:
        self._runner = runner
        self.logger = self.datamodule = None
        self.loggers: list[Any] = []
        self.callbacks: list[Any] = []
        self.sanity_checking = self.fast_dev_run = self.predicting = False

    @property
    def global_rank(self) -> int:
        """The rank of this process."""
        return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

    @property
    def is_global_zero(self) -> bool:
        """Whether this process has rank 0."""
        return self.global_rank == 0

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0."""
        return self._runner.epoch

    @property
    def global_step(self) -> int:
        """The steps of the optimizer so far."""
        return self._runner.progress.step

    @property
    def max_epochs(self) -> int | None:
        """The setting ``max_epochs``."""
        found: int | None = self._runner.args.get("max_epochs")
        return found

    @property
    def max_steps(self) -> int:
        """The setting ``max_steps``; -1 without one."""
        return int(self._runner.args.get("max_steps") or -1)

    @property
    def estimated_stepping_batches(self) -> int | float:
        """The steps of the whole run; infinity if a time ends it."""
        found = self._runner.totals.get("total_steps") or self._runner.progress.total_steps or NEVER
        return found if found < NEVER else math.inf

    @property
    def num_training_batches(self) -> int:
        """The steps of an epoch."""
        return self._runner.totals.get("steps_per_epoch", 0)

    @property
    def accumulate_grad_batches(self) -> int:
        """The setting ``gradient_accumulation_steps``."""
        return int(self._runner.args.get("gradient_accumulation_steps") or 1)

    @property
    def training(self) -> bool:
        """Whether the module is in training mode."""
        return self._runner.training

    @property
    def validating(self) -> bool:
        """Whether a validation runs."""
        return self._runner.stage.name == "valid"

    @property
    def testing(self) -> bool:
        """Whether a test runs."""
        return self._runner.stage.name == "test"

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers of torch."""
        return [one.optimizer for one in self._runner.made_optimizers]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(one for one in dir(type(self)) if not one.startswith("_"))
        fix = f"use {known}, or the settings in `roost.Runner.args`"
        raise AttributeError(f"self.trainer.{name} has no counterpart in roost; fix: {fix}")
