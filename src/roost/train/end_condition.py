"""When a run has reached its end."""

from __future__ import annotations

from dataclasses import dataclass

from roost.base.errors import ConfigError
from roost.base.interval import NEVER, Interval
from roost.train.progress import Progress


@dataclass(frozen=True)
class EndCondition:
    """The first of these limits that is reached; ``seconds`` counts training time over all sessions."""

    steps: int | None = None
    epochs: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, value: str | int) -> EndCondition:
        """Reads ``1000`` (steps), ``10ep`` or ``90min``.

        Raises:
            ConfigError: It is none of these.
        """
        interval = Interval.parse(value, setting="until")
        if interval.per_epoch:
            raise ConfigError("is no end", setting="until", received=value, fix="write 1000, 10ep or 90min")
        return cls(interval.steps or None, interval.epochs or None, interval.seconds or None)

    def reached(self, progress: Progress) -> bool:
        """Whether a run that is here is done."""
        return (
            (self.steps is not None and progress.step >= self.steps)
            or (self.epochs is not None and progress.epoch >= self.epochs)
            or (self.seconds is not None and progress.seconds >= self.seconds)
        )

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the whole run as far as steps and epochs limit it; `NEVER` when only time does."""
        by_epochs = NEVER if self.epochs is None else self.epochs * steps_per_epoch
        return min(NEVER if self.steps is None else self.steps, by_epochs)
