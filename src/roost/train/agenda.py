"""What is due after a step: intervals, requests, and the run's last step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.base.interval import NEVER
from roost.train import evaluation
from roost.train.hook import Call

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Agenda:
    """Knows for each hook when it is next due, and runs those that are, in their order.

    Args:
        calls: The hooks' work after a step, in calling order.
        steps_per_epoch: Steps in an epoch.
        total_steps: The run's last step, for which everything with an interval is due.
    """

    def __init__(self, calls: Sequence[Call], *, steps_per_epoch: int, total_steps: int) -> None:
        self.calls = calls
        self.requests: set[str] = set()
        """What was asked for and is not served yet: save, hold, best, validate, visualize, record, report."""
        self.due_now = False
        """Whether the hook that runs is due by its interval, not only asked for."""
        self.wake_step, self.wake_second = 0, 0.0
        """Nothing is due before this step and this moment of the clock, as long as nothing is requested."""
        self._steps_per_epoch, self._total_steps = steps_per_epoch, total_steps

    def begin(self, step: int, now: float, calls: Sequence[Call]) -> None:
        """Schedules calls as seen from ``step``."""
        for call in calls:
            call.schedule(step, self._steps_per_epoch, now)

    def set_alarm(self, now: float, *, at_latest: float) -> None:
        """Finds out when to look again, within ``at_latest`` seconds."""
        self.wake_step = min([self._total_steps, NEVER, *(call.next_step for call in self.calls)])
        self.wake_second = min([now + at_latest, math.inf, *(call.next_second for call in self.calls)])

    def run(self, trainer: Trainer, now: float, *, since: str | None = None) -> tuple[str, ...]:
        """Runs what is due, from the call ``since``, which was due before, on.

        Returns:
            Empty when all is done. When a stop dropped an evaluation: the key of the call that it cut
            short and the requests that were open, for the session that goes on.
        """
        step = trainer.progress.step
        keys = [call.key for call in self.calls]
        first = keys.index(since) if since in keys else 0
        self.begin(step, now, self.calls[:first])  # these have done their part of the step already
        for call in self.calls[first:]:
            self.due_now = call.due(step, now)
            owed = self.due_now or call.key == since or call.asked(self.requests)
            if not owed and not (trainer.finished and call.intervals):
                continue
            try:
                call(trainer)
            except evaluation.Interrupted:
                return (call.key, *sorted(self.requests))
            self.requests.discard(call.hook.serves or "")
            call.schedule(step, self._steps_per_epoch, now)
        self.requests -= {"record", "report"}  # of this step alone, also when nobody serves them
        return ()
