"""The hook that evaluates the runner on the validation sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.train.evaluation.monitored_metrics import check_monitor, is_row_value
from roost.train.hook import Hook, Phase, note_wall_clock_interval

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Validate(Hook):
    """Validates at an interval and on request. A stop during a validation discards it, and the next session
    repeats it first.

    Args:
        every: The interval, such as ``"1ep"``.
        probes: Whether one batch of each set is evaluated before training begins, to find the names of its
            metrics.
    """

    phase = Phase.EVAL
    serves = "validate"

    def __init__(self, every: str | int = "1ep", *, probes: bool = True) -> None:
        self.every, self.probes = every, probes
        self.left_out: list[str] = []
        """The values of `Runner.evaluate` that are no metrics, found by the probe."""

    def on_start(self, trainer: Trainer) -> None:
        note_wall_clock_interval(trainer, "validation", self.every)
        if not self.probes:
            return
        known, self.left_out = trainer.probe("valid")
        if known is None:
            return
        for setting, monitor in trainer.calls.monitors(trainer):
            if not is_row_value(monitor):  # that one is found by the first validation
                check_monitor(known, monitor, setting=setting)

    def on_step(self, trainer: Trainer) -> None:
        trainer.validate()
