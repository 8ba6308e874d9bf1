"""The hook that ends a session before its time limit."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from roost.base.interval import NEVER
from roost.base.session_end.deadline_files import DeadlineFiles
from roost.base.system.worker_protocol import TIME_LIMIT
from roost.base.text.durations import format_duration, format_short_duration
from roost.base.text.timestamps import format_clock
from roost.package.remote.upload_time import UploadTime
from roost.train.deadline import Deadline
from roost.train.hook import Hook, Phase
from roost.train.session_forecast import SessionForecast

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class TimeLimit(Hook):
    """Requests the stop early enough that the run has saved and ended by its time limit, whether it trains,
    validates or waits for data. A thread watches the clock, so the loop is not slowed down.

    How early is measured (`roost.train.deadline`). If no save was made in the first tenth of the session, it
    requests one, so that there is a checkpoint and a measured time of a save.

    Deadline files are read every second, or more often: an earlier time that appears there counts from then
    on. Once the pace of the run is measured, it says if the run will not finish by the time limit.

    With several ranks, the first rank of each machine watches, as machines may have different limits; the
    other ranks stop by the agreement.

    Args:
        ends: The time limit, in seconds since 1970; None: only the files may give one.
        begun: The start of the session, in seconds since 1970.
        files: The deadline files; None: there are none.
        upload: How long the upload of a checkpoint takes; None: the run has no remote copy.
    """

    phase = Phase.REPORT  # its `before_save` is called last, when the other hooks have prepared the save

    def __init__(
        self,
        ends: float | None,
        begun: float,
        files: DeadlineFiles | None = None,
        *,
        upload: UploadTime | None = None,
    ) -> None:
        self._given, self._begun = math.inf if ends is None else ends, begun
        self._files = files if files is not None else DeadlineFiles(())
        self._upload, self._has_measured_upload = upload, False
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._deadline: Deadline | None = None

    def on_start(self, trainer: Trainer) -> None:
        if not trainer.ranks.is_first_on_machine:
            return
        self._ends = self._given
        self._deadline = Deadline(self._ends, self._begun, saves=2 if trainer.ranks.are_several else 1)
        self._first_step, self._start_seconds = trainer.progress.step, time.time() - self._begun
        self._last_count, self._last_progress_time = -1, 0.0
        self._has_requested = False
        self._noted = trainer.checkpoints.seconds if trainer.checkpoints is not None else 0.0
        self._forecast, self._has_forecast = SessionForecast(self._first_step), False
        if self._deadline.is_set:
            self._print_end("")
        self._read_files(self._deadline)
        self._stop_if_due(trainer, self._deadline)
        self._is_over.clear()
        self._thread = threading.Thread(target=self._watch, args=[trainer, self._deadline], daemon=True)
        self._thread.start()

    def before_save(self, trainer: Trainer) -> None:
        if self._deadline is not None:
            self._has_requested = True  # this save gives the measured time
            self._stop_if_due(trainer, self._deadline, saves=True)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
        if self._deadline is not None and reason == TIME_LIMIT:
            left = self._ends - time.time()
            side = "before" if left >= 0 else "after"
            when = f"{format_duration(abs(left))} {side} {format_clock(self._ends)}"
            print(f"time limit: ended {when}", flush=True)
            if trainer.progress.step == self._first_step:
                took, whole = format_duration(self._start_seconds), format_duration(self._ends - self._begun)
                print(
                    f"time limit: no step was taken, as the start took {took} of {whole}; another session "
                    "with this limit gets no further: give it more than twice the time of the start",
                    flush=True,
                )

    def _print_end(self, source: str) -> None:
        left = self._ends - time.time()
        when = f"in {format_duration(left)}" if left > 0 else f"{format_duration(-left)} ago"
        print(f"ends by {format_clock(self._ends)} ({when}){source}, early enough to save", flush=True)

    def _read_files(self, deadline: Deadline) -> None:
        """Takes over the earliest time of the deadline files. What a file holds no longer is given up: a
        shutdown can be cancelled."""
        found = self._files.earliest()
        for trouble in self._files.new_troubles:
            print(trouble, flush=True)
        ends = min(self._given, found.at) if found is not None else self._given
        if ends == self._ends:
            return
        self._ends, self._has_forecast = ends, False
        # The given limit counts from the start of the session, a notice from now on.
        deadline.move(ends, self._begun if ends == self._given else time.time())
        if found is not None and ends == found.at:
            self._print_end(f", as {found.path} says")
        elif deadline.is_set:
            self._print_end(" again: the deadline file holds no earlier time any more")
        else:
            print("has no time limit any more: the deadline file holds no time", flush=True)

    def _say_forecast(self, trainer: Trainer, deadline: Deadline) -> None:
        """Says once that the run will not finish, as soon as that is known."""
        now, progress = time.time(), trainer.progress
        self._forecast.note(progress.step, now)
        if not deadline.is_set or self._has_forecast or trainer.wants_to_stop:
            return
        found = self._forecast.unfinished(
            progress, now, ends=self._ends - deadline.reserve(), session_seconds=self._ends - self._begun
        )
        if found is None:
            return
        self._has_forecast = True
        total = f" of {progress.total_steps:,}" if progress.total_steps < NEVER else ""
        more = format_duration(found.more_seconds)
        if trainer.ranks.is_main:
            print(
                f"will not finish in this session: ends about step {found.step:,}{total}, before "
                f"{format_clock(self._ends)}; the rest takes about {more} more",
                flush=True,
            )

    def _watch(self, trainer: Trainer, deadline: Deadline) -> None:
        while True:
            self._read_files(deadline)
            self._note_loop(trainer, deadline)
            self._note_saves(trainer, deadline)
            self._say_forecast(trainer, deadline)
            self._note_upload(trainer, deadline)
            self._stop_if_due(trainer, deadline)
            # Only in this thread: a request by a hook would take effect at once, as if the hooks of all ranks
            # had made it.
            if (
                deadline.needs_trial_save(time.time())
                and not self._has_requested
                and not trainer.wants_to_stop
            ):
                self._has_requested = True
                trainer.request_save()
            if self._is_over.wait(deadline.check_interval_seconds):
                return

    def _note_loop(self, trainer: Trainer, deadline: Deadline) -> None:
        """Notes how long the loop has published no progress; starting (a compilation) and saving are not
        steps."""
        publisher, now = trainer.publisher, time.monotonic()
        if publisher.count != self._last_count or publisher.phase in ("starting", "saving"):
            self._last_count, self._last_progress_time = publisher.count, now
        # The last progress may have come just after a poll, and the next may come just before one.
        deadline.note_step(now - self._last_progress_time + 2 * deadline.check_interval_seconds, time.time())

    def _note_saves(self, trainer: Trainer, deadline: Deadline) -> None:
        checkpoints = trainer.checkpoints
        if checkpoints is None:
            return
        if deadline.is_near(time.time()):
            checkpoints.hurry()
        if checkpoints.seconds == self._noted:
            return
        is_first, self._noted = not deadline.is_measured, checkpoints.seconds
        deadline.note_save(self._noted)
        if is_first and deadline.is_set and not trainer.wants_to_stop:
            took, before = format_short_duration(deadline.save_seconds), format_duration(deadline.reserve())
            print(f"a save takes {took}: the last one {before} before {format_clock(self._ends)}", flush=True)

    def _note_upload(self, trainer: Trainer, deadline: Deadline) -> None:
        if self._upload is None or trainer.checkpoints is None or not deadline.is_set:
            return
        seconds = self._upload.seconds(trainer.checkpoints.newest)
        if seconds is None:
            return
        deadline.upload_seconds = self._upload.excess_seconds(seconds, self._ends - self._begun)
        if not self._has_measured_upload and not trainer.wants_to_stop:
            self._has_measured_upload = True
            took, before = format_short_duration(seconds), format_duration(deadline.reserve())
            print(
                f"an upload takes {took}: the last save {before} before {format_clock(self._ends)}",
                flush=True,
            )

    def _stop_if_due(self, trainer: Trainer, deadline: Deadline, *, saves: bool = False) -> None:
        """Requests the stop if it is due; with ``saves``, also if there is no time for this save and a later
        one."""
        now = time.time()
        deadline.has_trained = trainer.progress.step > self._first_step
        is_due = deadline.is_due(now) or (saves and not deadline.allows_two(now))
        if trainer.finished or trainer.wants_to_stop or not is_due:
            return
        trainer.request_stop(TIME_LIMIT)
        save = "a save takes" if deadline.is_measured else "no save was measured yet, assuming"
        save = f"{save} {format_short_duration(deadline.save_seconds)}"
        reason = f"{save}, a step up to {format_duration(deadline.step_seconds)}"
        print(
            f"time limit: stops with {format_duration(max(0.0, self._ends - now))} left ({reason})",
            flush=True,
        )
