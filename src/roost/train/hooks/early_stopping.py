"""The hook that ends a run whose monitored metric no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from roost.train.hook import Hook, Phase
from roost.train.hooks.monitor import is_better, monitored_value, worst_value

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


_SETTING = "early_stopping.monitor"


class EarlyStop(Hook):
    """Finishes the run after ``patience`` validations without improvement.

    Args:
        monitor: The metric by full name, for example ``valid/loss``.
        mode: "min" or "max".
        patience: Number of validations to wait.
        min_delta: The smallest change that is an improvement; it must be exceeded.
        min_delta_mode: "absolute", or "relative" to the absolute value of the best one.
    """

    phase = Phase.DECIDE

    def __init__(
        self,
        monitor: str,
        *,
        mode: Literal["min", "max"] = "min",
        patience: int = 3,
        min_delta: float = 0.0,
        min_delta_mode: Literal["absolute", "relative"] = "absolute",
    ) -> None:
        self.monitor, self.mode, self.patience, self.min_delta = monitor, mode, patience, min_delta
        self.is_relative = min_delta_mode == "relative"
        self.best = worst_value(mode)
        self.waited = 0

    def on_start(self, trainer: Trainer) -> None:
        # A run that this hook has finished remains finished, unless patience was raised.
        self._decide(trainer)

    def monitors(self, trainer: Trainer) -> dict[str, str]:
        return {_SETTING: self.monitor}

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        value = monitored_value(results, self.monitor, setting=_SETTING)
        if is_better(value, self.best, mode=self.mode, min_delta=self.min_delta, relative=self.is_relative):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        self._decide(trainer)

    def _decide(self, trainer: Trainer) -> None:
        if self.waited >= self.patience and not trainer.finished:
            reason = (
                f"{self.monitor} did not improve in {self.waited} validations; its best is {self.best:.4g}"
            )
            print(f"early stop: {reason}", flush=True)
            trainer.request_stop(reason, finished=True)

    def state_dict(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "mode": self.mode, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The best value of another metric does not apply to this one.
        if (state["monitor"], state["mode"]) == (self.monitor, self.mode):
            self.best, self.waited = state["best"], state["waited"]
