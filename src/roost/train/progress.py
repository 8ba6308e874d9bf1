"""The progress of a run. Its only unit of counting is the optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_SAVED_FIELDS = ("step", "epoch", "batch", "samples", "seconds", "empty_batches")


@dataclass
class Progress:
    """The position of a run.

    ``epoch`` counts finished epochs and ``batch`` the micro-batches consumed in the current one, so the
    pair identifies the next batch exactly: between two epochs ``batch`` is 0. ``seconds`` is the training
    time of all sessions.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    seconds: float = 0.0
    empty_batches: int = 0
    """Empty micro-batches so far: they are counted in ``batch``, and nothing was computed from them."""

    total_steps: int = 0
    """Steps of the whole run, `NEVER` if only time limits it. It follows from the settings and is not
    saved."""
    total_seconds: float = math.inf

    @property
    def fraction(self) -> float:
        """The part of the whole run that is done, from 0 to 1."""
        by_steps = self.step / self.total_steps if self.total_steps else 0.0
        return min(1.0, max(by_steps, self.seconds / self.total_seconds))

    def advance(self, batches: int, samples: int, last: bool) -> None:
        """Counts one step of ``batches`` micro-batches; ``last``: they ended the epoch."""
        self.step += 1
        self.samples += samples
        self.batch = 0 if last else self.batch + batches
        self.epoch += last

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters; the totals follow from the settings."""
        return {name: getattr(self, name) for name in _SAVED_FIELDS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        for name, value in state.items():
            setattr(self, name, value)
