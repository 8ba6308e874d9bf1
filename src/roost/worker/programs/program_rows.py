"""Rows of a program, whose sources count differently: its output, CSV files, event files and calls.

The rows of a package have ascending steps. One source is the clock: the finest one that has counted so far
(`Source`). Its steps are those of the rows; a row of another source gets the step at which the clock is. A
counter of the output that begins again, as one of batches does each epoch, is added up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.package.records import ROW_FIELDS, RecordsWriter
from roost.worker.programs.line_metrics import LineValues, split_name

_MAX_STEP = 2**53
_PUBLICATION_SECONDS = 0.25


class Source(IntEnum):
    """A kind of source; where several count, the highest one is the clock. A metric of the same name is taken
    from the source that had it first, or from a higher one."""

    LINES = 0
    EPOCHS = 1
    STEPS = 2
    CSV = 3
    EVENTS = 4
    CALLS = 5


_OUTPUT = (Source.LINES, Source.EPOCHS, Source.STEPS)


class ProgramRows:
    """Writes the rows and the progress of one session.

    Args:
        package: The package.
        session: The number of the session.
        last_step: The step of the newest row of earlier sessions, from which a source that does not count
            continues; 0: there is none, or the program begins at its start.
    """

    def __init__(self, package: Path, session: int, *, last_step: int = 0) -> None:
        self._path = package / "records" / f"{session}.jsonl"
        self._session = session
        self._writer: RecordsWriter | None = None
        self._progress_path = package / "progress"
        self._progress: ProgressFile | None = None
        self._published = 0.0
        self._began = time.monotonic()
        self._clock: Source | None = None
        self._owners: dict[str, Source] = {}
        self._at_step: set[str] = set()
        self._step, self._epoch = last_step, 0
        self._base, self._counted = 0, -1
        self._bar_total = 0
        self._fraction = 0.0
        self._total = 0

    def add_line(self, values: LineValues) -> None:
        """Adds what a line of output says."""
        if values.is_bar and values.of is not None:
            if values.of >= self._bar_total:
                self._bar_total = values.of
            else:  # a bar of epochs around one of batches
                values = values._replace(step=None, of=None)
        self._note_progress(values)
        counted, source = self._counted_step(values)
        if counted is not None:
            self._advance(source, counted)
        elif self._clock is None and values.metrics:
            self._advance(Source.LINES, self._step + 1)
        # A loss that is printed again and again within an epoch is not one value of that epoch.
        elif self._clock in _OUTPUT and self._at_step.intersection(values.metrics):
            self._move(self._step + 1)
        self._write(source, values.metrics)

    def add(self, source: Source, step: int | None, metrics: Mapping[str, float]) -> None:
        """Adds a row of another source.

        Args:
            source: The source.
            step: Its own step; None: it does not count.
            metrics: The metrics by name.
        """
        if step is not None and 0 <= step < _MAX_STEP:
            self._advance(source, step)
        elif self._clock is None:
            self._step += 1
        self._write(source, {split_name(name): value for name, value in metrics.items()})

    def _counted_step(self, values: LineValues) -> tuple[int | None, Source]:
        """Returns the step of a line, and how it was counted."""
        if values.epoch is not None and values.step is not None and values.of:
            return values.epoch * values.of + values.step, Source.STEPS
        if values.step is not None:
            if values.step < self._counted:  # a counter that begins again
                self._base += self._counted
            self._counted = values.step
            return self._base + values.step, Source.STEPS
        return values.epoch, Source.EPOCHS

    def _advance(self, source: Source, step: int) -> None:
        step = min(step, _MAX_STEP)
        if self._clock is None or source > self._clock:
            is_lower = step < self._step and self._writer is not None
            if is_lower and source in _OUTPUT:  # it counts by less than the lines before: their rows stay
                return
            if is_lower and self._writer is not None:
                self._writer.go_back(max(0, step - 1))
            self._clock = source
            self._move(step)
        if source == self._clock and step > self._step:
            self._move(step)

    def _move(self, step: int) -> None:
        self._step = step
        self._at_step.clear()

    def _write(self, source: Source, metrics: Mapping[str, float]) -> None:
        # Lines of output are one source, however they count.
        owner = max(source, Source.STEPS)
        own: dict[str, float] = {}
        for name, value in metrics.items():
            if name not in ROW_FIELDS and self._owners.get(name, owner) <= owner:
                self._owners[name] = owner
                own[name] = value
        if own:
            if self._writer is None:
                before = max(0, self._step - 1)
                self._writer = RecordsWriter(self._path, session=self._session, start_step=before)
            with contextlib.suppress(OSError):  # a full disk: it is kept, and written with the next row
                self._writer.row(self._step, self._epoch, own)
            self._at_step.update(own)
        self.publish()

    def _note_progress(self, values: LineValues) -> None:
        epoch, of, step = values.epoch, values.of, values.step
        if epoch is not None:
            self._epoch = epoch
        part = step / of if step is not None and of else None
        if values.epochs and epoch is not None:
            done = max(0, epoch - 1) + (part or 0.0)
            self._fraction, self._total = min(1.0, done / values.epochs), 0
        elif part is not None and epoch is None:
            self._fraction, self._total = min(1.0, part), of or 0

    def publish(self, *, is_end: bool = False) -> None:
        """Publishes the progress for bars and lists, not more than four times a second."""
        now = time.monotonic()
        if now - self._published < _PUBLICATION_SECONDS and not is_end:
            return
        self._published = now
        if self._progress is None:
            if self._clock is None:  # a program that counts nothing has no step
                return
            try:
                live_progress.reset(self._progress_path)
                self._progress = ProgressFile(self._progress_path)
            except OSError:  # a full disk
                return
        seconds = now - self._began
        phase = live_progress.PHASES.index("ended" if is_end else "training")
        self._progress.publish(
            self._step, self._epoch, 0, phase, self._total, 0, 0, seconds, 0.0, self._fraction
        )

    def close(self) -> None:
        """Makes all rows durable, and publishes the end."""
        if self._clock is not None:
            self.publish(is_end=True)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
