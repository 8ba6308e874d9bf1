"""The agenda: which hooks are due after a step, by interval, by request, or in the last step of the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from roost.base.errors import ContractError
from roost.base.interval import NEVER
from roost.train.data.batches import Interrupted
from roost.train.hook import Call

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_STEP_REQUESTS = frozenset(["record", "report"])
_SAVE_REQUESTS = frozenset(["save", "hold", "best"])


class CallTimes:
    """The seconds and the number of calls, by their keys."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.numbers: Counter[str] = Counter()

    def add(self, key: str, seconds: float) -> None:
        """Counts a call."""
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        self.numbers[key] += 1


class Agenda:
    """Schedules the calls of hooks after a step, and runs those that are due, in their order.

    Args:
        calls: The calls of hooks after a step, in calling order.
        steps_per_epoch: Steps in an epoch.
        total_steps: The last step of the run, at which every call with an interval is due.
    """

    def __init__(self, calls: Sequence[Call], *, steps_per_epoch: int, total_steps: int) -> None:
        self.calls = calls
        self.requests: set[str] = set()
        """Open requests: save, hold, best, validate, visualize, record, report."""
        self.due_now = False
        """Whether the running hook is due by its interval, not only by a request."""
        self.pending = ""
        """The key of the call at which a stop interrupted a step's work; empty if the step was completed."""
        self.times: CallTimes | None = None
        """Where the calls are timed; None: they are not."""
        self.wake_step, self.wake_second = 0, 0.0
        """Without a request, nothing is due before this step and this time of the clock."""
        self._steps_per_epoch, self._total_steps = steps_per_epoch, total_steps

    def request(self, *requests: str) -> None:
        """Adds requests, which hooks serve in this step or in the next.

        Raises:
            ContractError: No hook of this trainer serves one of them.
        """
        served = {call.hook.serves for call in self.calls}
        for request in requests:
            if request not in served and request not in _STEP_REQUESTS | {"hold", "best"}:
                raise ContractError(
                    f"{request!r} is requested, but no hook of this trainer serves it",
                    fix="add the hook, for example roost.train.hooks.Save()",
                )
        self.requests.update(requests)

    def drop_save_requests(self) -> None:
        """Drops all requests for a save: the state is copied, or could not be saved."""
        self.requests -= _SAVE_REQUESTS

    def begin(self, step: int, now: float, calls: Sequence[Call]) -> None:
        """Schedules the next time of calls, counted from ``step``."""
        for call in calls:
            call.schedule(step, self._steps_per_epoch, now)

    def set_alarm(self, now: float, *, at_latest: float, end: float = math.inf) -> None:
        """Sets `wake_step` and `wake_second`: within ``at_latest`` seconds, and no later than ``end``.

        They may differ between ranks, as rank 0 has additional hooks; calls of all ranks are due at one step.
        """
        self.wake_step = min([self._total_steps, NEVER, *(call.next_step for call in self.calls)])
        self.wake_second = min([now + at_latest, end, *(call.next_second for call in self.calls)])

    def resume(self, trainer: Trainer, now: float) -> None:
        """Schedules all calls after a restart, and first completes the work that a stop interrupted in the
        step of the checkpoint."""
        since, self.pending = self.pending, ""  # before a save that belongs to this work
        step = trainer.progress.step
        self.begin(step - bool(since), now, self.calls)
        if since:
            keys = [call.key for call in self.calls]
            first = keys.index(since) if since in keys else 0
            self.begin(step, now, self.calls[:first])  # these calls were made before the stop
            self.run(trainer, now, self.calls[first:], owed=since)

    def run(self, trainer: Trainer, now: float, calls: Sequence[Call], *, owed: str = "") -> None:
        """Runs the due calls among ``calls``, and the call with the key ``owed``.

        A stop that interrupts an evaluation leaves the rest of the step to the next session (`pending`).
        """
        step = trainer.progress.step
        for call in calls:
            self.due_now = call.due(step, now)
            # With one hook that runs in each step, all others are checked here too: the rare test comes last.
            is_requested = bool(self.requests) and call.is_requested(self.requests)
            must_run = self.due_now or is_requested or (bool(owed) and call.key == owed)
            if not must_run and not (trainer.finished and call.intervals):
                continue
            started = perf_counter()
            try:
                call(trainer)
            except Interrupted:
                trainer.confirm_stop()  # all ranks agreed on it at the end of their evaluation
                self.pending = call.key
                return
            if self.times is not None:
                self.times.add(call.key, perf_counter() - started)
            self.requests.discard(call.hook.serves or "")
            call.schedule(step, self._steps_per_epoch, now)
        self.requests -= _STEP_REQUESTS  # also if no hook serves them

    def state_dict(self) -> dict[str, Any]:
        """Returns the open requests, without those of the save that is being written, and `pending`."""
        open_requests = self.requests if self.pending else self.requests - _SAVE_REQUESTS - _STEP_REQUESTS
        return {"pending": self.pending, "requests": sorted(open_requests)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.pending, self.requests = state["pending"], set(state["requests"])
