"""The hook that keeps an average of the weights during training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roost.base.errors import ConfigError
from roost.base.interval import parse_start
from roost.train.hook import Hook, Phase, note_wall_clock_interval
from roost.train.optim.weight_average import HOOK_PREFIX, Average, AverageMethod

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Averaging(Hook):
    """Updates an average of the weights at an interval, and has it evaluated with each validation.

    The last step of the run counts only if the interval falls on it, so a run with a later end has the same
    bits. Before its first update the average equals the weights.

    Args:
        name: Name of the average; its metrics are ``valid/<name>/<metric>``.
        method: "ema" or "swa"; see `roost.train.optim.weight_average`.
        decay: For "ema": the share of the old average that each update keeps.
        every: When the average is updated: 1 (each step), 100, ``"1ep"``.
        start: The step, or the epoch (``"5ep"``), of the first update.
        validate: Whether each validation and test measures the average, too.
    """

    phase = Phase.MODEL

    def __init__(
        self,
        name: str = "ema",
        *,
        method: AverageMethod = "ema",
        decay: float = 0.999,
        every: str | int = 1,
        start: str | int = 0,
        validate: bool = True,
    ) -> None:
        self._name, self.every, self.start, self.validate = name, every, start, validate
        self.average = Average(method=method, decay=decay)
        self._is_restored = False
        self._first_step = 0

    @property
    def name(self) -> str:
        return f"{HOOK_PREFIX}{self._name}"

    def on_start(self, trainer: Trainer) -> None:
        """Prints where the average begins, and registers it for validation."""
        note_wall_clock_interval(trainer, f"an update of the average {self._name}", self.every)
        start = parse_start(self.start, setting=f"averages.{self._name}.start")
        self._first_step = start.next_step(0, trainer.steps_per_epoch) if start else 0
        if self._first_step > trainer.total_steps:
            last = f"the run ends at step {trainer.total_steps}"
            print(f"warning: the average {self._name} begins at step {self._first_step}: {last}", flush=True)
        if self.validate:
            self._require_own_name(trainer)
            trainer.averages[self._name] = self.average
        if trainer.progress.step and not self._is_restored:
            print(f"the average {self._name} begins at this step: the checkpoint has none", flush=True)
        self._begin(trainer)

    def on_rollback(self, trainer: Trainer) -> None:
        if not self._is_restored:
            self.average.clear()  # the checkpoint is older than the average
        self._begin(trainer)

    def _begin(self, trainer: Trainer) -> None:
        self.average.fit_to(trainer.runner)
        self._is_restored = False

    def _require_own_name(self, trainer: Trainer) -> None:
        for loader in trainer.loaders:
            split, _, part = loader.partition("/")
            if part == self._name and split in ("valid", "test"):
                raise ConfigError(
                    f"has the same name as a set: {loader}/loss would be the loss of both",
                    setting=f"averages.{self._name}",
                    fix="give the average another name",
                )

    def on_step(self, trainer: Trainer) -> None:
        if trainer.due_now and trainer.progress.step >= self._first_step:
            self.average.update(trainer.runner)

    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The number of updates by another method does not apply to this one.
        if state["method"] == self.average.method:
            self.average.load_state_dict(state)
            self._is_restored = True
