"""What is due after a step: intervals, requests, and the run's last step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roost.base.errors import ContractError
from roost.base.interval import NEVER
from roost.train.data.batches import Interrupted
from roost.train.hook import Call

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_STEP_REQUESTS = frozenset(["record", "report"])
_SAVE_REQUESTS = frozenset(["save", "hold", "best"])


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
        self.pending = ""
        """The key of the call at which a stop cut a step's work short; empty when nothing is owed."""
        self.wake_step, self.wake_second = 0, 0.0
        """Nothing is due before this step and this moment of the clock, as long as nothing is requested."""
        self._steps_per_epoch, self._total_steps = steps_per_epoch, total_steps

    def request(self, *requests: str) -> None:
        """Requests what hooks serve, in this step or else in the next.

        Raises:
            ContractError: No hook of this trainer serves it.
        """
        served = {call.hook.serves for call in self.calls}
        for request in requests:
            if request not in served and request not in _STEP_REQUESTS | {"hold", "best"}:
                raise ContractError(
                    f"{request!r} is asked for, and no hook of this trainer serves it",
                    fix="add the hook, for example roost.train.hooks.Save()",
                )
        self.requests.update(requests)

    def drop_save_requests(self) -> None:
        """Takes back all that asks for a save: one stands."""
        self.requests -= _SAVE_REQUESTS

    def begin(self, step: int, now: float, calls: Sequence[Call]) -> None:
        """Schedules calls as seen from ``step``."""
        for call in calls:
            call.schedule(step, self._steps_per_epoch, now)

    def set_alarm(self, now: float, *, at_latest: float, end: float = math.inf) -> None:
        """Finds out when to look again: within ``at_latest`` seconds, and at that at which the run ends.

        Ranks may look at other steps, as rank 0 has hooks of its own; what is due for all of them is found at
        one step.
        """
        self.wake_step = min([self._total_steps, NEVER, *(call.next_step for call in self.calls)])
        self.wake_second = min([now + at_latest, end, *(call.next_second for call in self.calls)])

    def resume(self, trainer: Trainer, now: float) -> None:
        """Schedules everything after a restart, and does first what a stop had cut short in the step that
        the checkpoint is of."""
        since, self.pending = self.pending, ""  # before a save that is part of this work
        step = trainer.progress.step
        self.begin(step - bool(since), now, self.calls)
        if since:
            keys = [call.key for call in self.calls]
            first = keys.index(since) if since in keys else 0
            self.begin(step, now, self.calls[:first])  # these have done their part of the step already
            self.run(trainer, now, self.calls[first:], owed=since)

    def run(self, trainer: Trainer, now: float, calls: Sequence[Call], *, owed: str = "") -> None:
        """Runs what is due among ``calls``, and the call ``owed``. A stop that drops an evaluation leaves
        the rest of the step to the next session (`pending`)."""
        step = trainer.progress.step
        for call in calls:
            self.due_now = call.due(step, now)
            # One hook with work in each step brings all others here, too: what is seldom is asked last.
            is_asked = bool(self.requests) and call.is_requested(self.requests)
            wanted = self.due_now or is_asked or (bool(owed) and call.key == owed)
            if not wanted and not (trainer.finished and call.intervals):
                continue
            try:
                call(trainer)
            except Interrupted:
                trainer.confirm_stop()  # all ranks have heard of it, at the end of what they evaluated
                self.pending = call.key
                return
            self.requests.discard(call.hook.serves or "")
            call.schedule(step, self._steps_per_epoch, now)
        self.requests -= _STEP_REQUESTS  # also when nobody serves them

    def state_dict(self) -> dict[str, Any]:
        """What is owed. The save that is being written is not: its own requests stay out of it."""
        open_requests = self.requests if self.pending else self.requests - _SAVE_REQUESTS - _STEP_REQUESTS
        return {"pending": self.pending, "requests": sorted(open_requests)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.pending, self.requests = state["pending"], set(state["requests"])
