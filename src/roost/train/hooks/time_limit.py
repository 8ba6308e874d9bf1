"""Ends a session before its deadline."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from roost.base.system.worker_protocol import TIME_LIMIT
from roost.base.text.durations import format_duration, format_short_duration
from roost.base.text.timestamps import format_clock
from roost.train.deadline import Deadline
from roost.train.hook import Hook, Phase

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class TimeLimit(Hook):
    """Asks the run to stop so early that it is saved and over by a moment, whatever it does then: it trains,
    validates, or waits for data. A thread looks at the clock; the loop is not held up.

    How early is measured (`roost.train.deadline`). Where no save was made in the first tenth of the session
    it asks for one, so that there is a checkpoint, and a measure.

    Of several ranks the first of each machine looks, which may have an end of its own; the others hear of it
    as of any stop.

    Args:
        ends: The moment, in unix seconds.
        begun: When the session began.
    """

    phase = Phase.REPORT  # a save begins when the other hooks have done what they do before it

    def __init__(self, ends: float, begun: float) -> None:
        self._ends, self._begun = ends, begun
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._deadline: Deadline | None = None

    def on_start(self, trainer: Trainer) -> None:
        if not trainer.ranks.is_first_on_machine:
            return
        self._deadline = Deadline(self._ends, self._begun, saves=2 if trainer.ranks.are_several else 1)
        self._first_step = trainer.progress.step
        self._seen, self._seen_at = -1, 0.0
        self._has_asked = False
        self._noted = trainer.checkpoints.seconds if trainer.checkpoints is not None else 0.0
        left = self._ends - time.time()
        when = f"in {format_duration(left)}" if left > 0 else f"{format_duration(-left)} ago"
        said = f"ends by {format_clock(self._ends)} ({when}): saves as long before as its saves will take"
        print(said, flush=True)
        self._stop_if_due(trainer, self._deadline)
        self._is_over.clear()
        self._thread = threading.Thread(target=self._watch, args=[trainer, self._deadline], daemon=True)
        self._thread.start()

    def before_save(self, trainer: Trainer) -> None:
        if self._deadline is not None:
            self._has_asked = True  # its time will be known
            self._stop_if_due(trainer, self._deadline, saves=True)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
        if self._deadline is not None and reason == TIME_LIMIT:
            left = self._ends - time.time()
            when = f"{format_duration(abs(left))} {'before' if left >= 0 else 'after'} {format_clock(self._ends)}"
            print(f"time limit: ended {when}", flush=True)

    def _watch(self, trainer: Trainer, deadline: Deadline) -> None:
        while True:
            self._look_at_loop(trainer, deadline)
            self._look_at_saves(trainer, deadline)
            self._stop_if_due(trainer, deadline)
            # Here alone: what a hook asks for holds at once, as if the hooks of all ranks had asked for it.
            if deadline.needs_trial_save(time.time()) and not self._has_asked and not trainer.wants_to_stop:
                self._has_asked = True
                trainer.request_save()
            if self._is_over.wait(deadline.check_interval_seconds):
                return

    def _look_at_loop(self, trainer: Trainer, deadline: Deadline) -> None:
        """Notes for how long the loop has given no sign; starting (a compilation) and saving are no steps."""
        told, now = trainer.publisher, time.monotonic()
        if told.count != self._seen or told.phase in ("starting", "saving"):
            self._seen, self._seen_at = told.count, now
        # The sign before may have come just after a look, and the next comes just before one.
        deadline.note_step(now - self._seen_at + 2 * deadline.check_interval_seconds, time.time())

    def _look_at_saves(self, trainer: Trainer, deadline: Deadline) -> None:
        checkpoints = trainer.checkpoints
        if checkpoints is None:
            return
        if deadline.is_near(time.time()):
            checkpoints.hurry()
        if checkpoints.seconds == self._noted:
            return
        is_first, self._noted = not deadline.is_measured, checkpoints.seconds
        deadline.note_save(self._noted)
        if is_first and not trainer.wants_to_stop:
            took, before = format_short_duration(deadline.save_seconds), format_duration(deadline.reserve())
            print(f"a save takes {took}: the last one {before} before {format_clock(self._ends)}", flush=True)

    def _stop_if_due(self, trainer: Trainer, deadline: Deadline, *, saves: bool = False) -> None:
        """Asks for the end if it is time; ``saves``: or if there is none for a save now and another later."""
        now = time.time()
        deadline.has_trained = trainer.progress.step > self._first_step
        is_due = deadline.is_due(now) or (saves and not deadline.allows_two(now))
        if trainer.finished or trainer.wants_to_stop or not is_due:
            return
        trainer.request_stop(TIME_LIMIT)
        save = "a save takes" if deadline.is_measured else "no save was measured yet, taken for"
        save = f"{save} {format_short_duration(deadline.save_seconds)}"
        told = f"{save}, a step up to {format_duration(deadline.step_seconds)}"
        print(
            f"time limit: stops with {format_duration(max(0.0, self._ends - now))} left ({told})", flush=True
        )
