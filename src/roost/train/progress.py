"""Where a run is. The only counter unit is the optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_SAVED_FIELDS = ("step", "epoch", "batch", "samples", "seconds", "empty_batches")


@dataclass
class Progress:
    """How far a run has come.

    ``epoch`` counts finished epochs and ``batch`` the micro-batches consumed in the current one, so the
    pair says exactly which batch is next: at an epoch's edge ``batch`` is 0. ``seconds`` is training time
    over all sessions.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    seconds: float = 0.0
    empty_batches: int = 0
    """So far: they count as batches, and nothing was computed of them."""

    total_steps: int = 0
    """Steps of the whole run, `NEVER` when only time limits it; follows from the settings, is not saved."""
    total_seconds: float = math.inf

    @property
    def fraction(self) -> float:
        """How much of the whole run is done, from 0 to 1."""
        by_steps = self.step / self.total_steps if self.total_steps else 0.0
        return min(1.0, max(by_steps, self.seconds / self.total_seconds))

    def advance(self, batches: int, samples: int, last: bool) -> None:
        """Counts one step that consumed ``batches`` micro-batches; ``last``: they ended the epoch."""
        self.step += 1
        self.samples += samples
        self.batch = 0 if last else self.batch + batches
        self.epoch += last

    def state_dict(self) -> dict[str, Any]:
        """All but the totals."""
        return {name: getattr(self, name) for name in _SAVED_FIELDS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value)
