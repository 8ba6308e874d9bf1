"""Writes rows of metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from roost.base import durable
from roost.package.records import RecordsWriter
from roost.train.evaluation.monitored_metrics import is_row_value, row_values
from roost.train.events import must_be_finite
from roost.train.hook import Hook, Phase
from roost.train.hooks.wall_clock import note_wall_clock_interval

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_NONE: Mapping[str, float] = MappingProxyType({})


class Records(Hook):
    """Cuts a row at its interval, at each validation and in the last step: training and validation together,
    at most one per step. Cutting is the one place where values are read back from the device. Every rank cuts
    the same row, of the steps of all, and rank 0 writes it.

    Args:
        folder: Where the sessions' files lie; made if need be.
        every: The interval.
        session: Number of the session of a package, which is there: the folder above is not made then. The
            next free one when None.
    """

    phase = Phase.RECORD
    serves = "record"

    def __init__(self, folder: Path | str, every: str | int = "10/ep", *, session: int | None = None) -> None:
        self.every = every
        self._folder, self._session = Path(folder), session
        self._writer: RecordsWriter | None = None
        self._said = False

    def on_start(self, trainer: Trainer) -> None:
        note_wall_clock_interval(trainer, "a row", self.every)
        if not trainer.ranks.is_main:
            return
        durable.make_folders(self._folder, below=self._folder.parent if self._session is not None else None)
        used = [int(path.stem) for path in self._folder.glob("*.jsonl")]
        session = self._session if self._session is not None else max(used, default=0) + 1
        path = self._folder / f"{session}.jsonl"
        self._writer = RecordsWriter(path, session=session, start_step=trainer.progress.step)

    def on_step(self, trainer: Trainer) -> None:
        trainer.recovery.check_steps(trainer)
        row = row_values(trainer, trainer.events.row())
        # What hooks decided by is among the results, too, even where this row has no such value.
        results = {name: value for name, value in trainer.results.items() if not is_row_value(name)}
        # After the values were read: that has waited for the device.
        times = trainer.stepper.timing.row(trainer.progress.step, trainer.progress.samples)
        self.write(trainer, {**row, **results}, times)
        bad = [n for n, value in row.items() if must_be_finite(n) and not math.isfinite(value)]
        if bad:
            said = f"{bad[0]} is {row[bad[0]]} in the row of step {trainer.progress.step}"
            raise trainer.recovery.nonfinite_error(trainer, said, trainer.events.first_bad)

    def write(self, trainer: Trainer, row: dict[str, float], times: Mapping[str, float] = _NONE) -> None:
        """Appends one row at the current step. A full disk is said once; the rows wait for space.

        Args:
            trainer: Where it is.
            row: The metrics.
            times: Written beside the metrics, but not given to `Trainer.report_row`: what is told is part of a
                checkpoint, and two runs that are equal differ in their times.
        """
        trainer.report_row(row)
        if self._writer is None:
            return
        try:
            self._writer.row(trainer.progress.step, trainer.progress.epoch, {**row, **times})
        except OSError as error:
            self._say(error)

    def _say(self, error: OSError) -> None:
        if not self._said:
            print(f"records not written: {error}; they are kept and tried again", flush=True)
        self._said = True

    def on_rollback(self, trainer: Trainer) -> None:
        if self._writer is not None:
            try:
                self._writer.go_back(trainer.progress.step)
            except OSError as error:
                self._say(error)

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
