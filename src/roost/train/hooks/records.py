"""The hook that writes rows of metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from roost.base import durable
from roost.package.records import RecordsWriter
from roost.package.results.time_breakdown import EPOCH_SECONDS
from roost.train.evaluation.monitored_metrics import is_row_value, row_values
from roost.train.events import must_be_finite
from roost.train.hook import Hook, Phase, note_wall_clock_interval

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_NONE: Mapping[str, float] = MappingProxyType({})


class Records(Hook):
    """Writes a row at its interval, at each validation and in the last step: metrics of training and
    validation together, at most one row per step. This is the only place where training values are read back
    from the device. Every rank computes the same row over all ranks, and rank 0 writes it.

    Args:
        folder: The folder of the sessions' files; created if needed.
        every: The interval.
        session: Number of the session in a package; the parent of ``folder`` must exist then. When None, the
            next free number.
    """

    phase = Phase.RECORD
    serves = "record"

    def __init__(self, folder: Path | str, every: str | int = "10/ep", *, session: int | None = None) -> None:
        self.every = every
        self._folder, self._session = Path(folder), session
        self._writer: RecordsWriter | None = None
        self._has_warned = False
        self._epoch, self._epoch_began_at, self._epoch_seconds = 0, math.nan, math.nan
        """The number of ended epochs; when the newest one ended; its duration, if no row has it yet."""

    def on_start(self, trainer: Trainer) -> None:
        note_wall_clock_interval(trainer, "a row", self.every)
        self._begin_epoch(trainer)
        if not trainer.ranks.is_main:
            return
        durable.make_folders(self._folder, below=self._folder.parent if self._session is not None else None)
        used = [int(path.stem) for path in self._folder.glob("*.jsonl")]
        session = self._session if self._session is not None else max(used, default=0) + 1
        path = self._folder / f"{session}.jsonl"
        step = trainer.progress.step
        # Only at the start: in a later epoch the order of the first one would have to be made for this.
        data_order = trainer.loaders["train"].order_digest() if step == 0 else None
        self._writer = RecordsWriter(path, session=session, start_step=step, data_order=data_order)

    def on_step(self, trainer: Trainer) -> None:
        trainer.recovery.check_steps(trainer.step_context)
        row = row_values(trainer.events.row(), trainer.stepper, trainer.progress)
        # The results include row values by which hooks decided; only this row's own ones are recorded.
        results = {name: value for name, value in trainer.results.items() if not is_row_value(name)}
        # After the values were read, which has waited for the device.
        times = trainer.stepper.timing.row(trainer.progress.step, trainer.progress.samples)
        self._note_epoch(trainer)
        if not math.isnan(self._epoch_seconds):
            times[EPOCH_SECONDS] = round(self._epoch_seconds, 4)
            self._epoch_seconds = math.nan
        self.write(trainer, {**row, **results}, times)
        bad = [n for n, value in row.items() if must_be_finite(n) and not math.isfinite(value)]
        if bad:
            text = f"{bad[0]} is {row[bad[0]]} in the row of step {trainer.progress.step}"
            raise trainer.recovery.nonfinite_error(trainer.step_context, text, trainer.events.first_bad)

    def on_epoch(self, trainer: Trainer) -> None:
        self._note_epoch(trainer)  # if no row was due in its last step

    def _begin_epoch(self, trainer: Trainer) -> None:
        """Begins to measure, unless the epoch has begun before: in another session, or before a rollback."""
        self._epoch, self._epoch_seconds = trainer.progress.epoch, math.nan
        self._epoch_began_at = math.nan if trainer.progress.batch else perf_counter()

    def _note_epoch(self, trainer: Trainer) -> None:
        """Measures the epoch that has ended since the last call, if any has."""
        if trainer.progress.epoch != self._epoch:
            now = perf_counter()
            self._epoch_seconds, self._epoch_began_at = now - self._epoch_began_at, now
            self._epoch = trainer.progress.epoch

    def write(self, trainer: Trainer, row: dict[str, float], times: Mapping[str, float] = _NONE) -> None:
        """Appends one row at the current step. A disk error is printed once; the rows are kept until they can
        be written.

        Args:
            trainer: The trainer, at that step.
            row: The metrics.
            times: Written with the metrics, but not passed to `Trainer.report_row`: the reported row is part
                of checkpoints, and two equal runs differ in their times.
        """
        trainer.report_row(row)
        if self._writer is None:
            return
        try:
            self._writer.row(trainer.progress.step, trainer.progress.epoch, {**row, **times})
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            print(f"records not written: {error}; they are kept and written later", flush=True)
        self._has_warned = True

    def on_rollback(self, trainer: Trainer) -> None:
        self._begin_epoch(trainer)
        if self._writer is not None:
            try:
                self._writer.go_back(trainer.progress.step)
            except OSError as error:
                self._warn(error)

    def before_save(self, trainer: Trainer) -> None:
        if self._writer is not None:
            self._writer.sync()

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                print(f"the last records could not be written: {error}", flush=True)
            self._writer = None
