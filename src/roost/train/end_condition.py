"""The end of a run: a limit of steps, epochs or training time."""

from __future__ import annotations

from dataclasses import dataclass

from roost.base.errors import ConfigError
from roost.base.interval import NEVER, Interval
from roost.train.progress import Progress


@dataclass(frozen=True)
class EndCondition:
    """The end of a run: the first of these limits that is reached. ``seconds`` is the training time of all
    sessions."""

    steps: int | None = None
    epochs: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, value: str | int) -> EndCondition:
        """Reads ``1000`` (steps), ``10ep`` or ``90min``.

        Raises:
            ConfigError: The value has none of these forms.
        """
        try:
            interval = Interval.parse(value, setting="until")
        except ConfigError:
            interval = Interval()
        if interval.per_epoch or interval == Interval():
            raise ConfigError(
                "is not a valid end of a run",
                setting="until",
                received=value,
                fix="write 1000, 10ep or 90min",
            )
        return cls(interval.steps or None, interval.epochs or None, interval.seconds or None)

    def reached(self, progress: Progress) -> bool:
        """Whether a run at this position has ended."""
        return (
            (self.steps is not None and progress.step >= self.steps)
            or (self.epochs is not None and progress.epoch >= self.epochs)
            or (self.seconds is not None and progress.seconds >= self.seconds)
        )

    def total_steps(self, steps_per_epoch: int) -> int:
        """Returns the limit in steps, from steps and epochs; `NEVER` if only time limits the run."""
        by_epochs = NEVER if self.epochs is None else self.epochs * steps_per_epoch
        return min(NEVER if self.steps is None else self.steps, by_epochs)
