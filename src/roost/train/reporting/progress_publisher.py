"""The publisher of a run's progress record, and the meter of its throughput."""

from __future__ import annotations

from roost.base.interval import NEVER
from roost.package.live_progress import PHASES, ProgressFile
from roost.train.progress import Progress


class ProgressPublisher:
    """Publishes a run's progress and recent throughput.

    Args:
        board: The progress record to write. None: nothing is published.
        steps_per_epoch: Steps in an epoch.
    """

    def __init__(self, board: ProgressFile | None, *, steps_per_epoch: int) -> None:
        self._board, self._steps_per_epoch = board, steps_per_epoch
        self._throughput = ThroughputMeter()
        self.phase, self.count = "starting", 0
        """The newest phase, and the number of publications: a loop that hangs publishes nothing."""

    def publish(self, progress: Progress, phase: str) -> None:
        """Writes the progress record: takes about 1 µs, and a reader never sees a partial record."""
        self.phase, self.count = phase, self.count + 1
        if self._board is None:
            return
        self._throughput.update(progress.samples, progress.seconds)
        self._board.publish(
            progress.step,
            progress.epoch,
            progress.batch,
            PHASES.index(phase),
            progress.total_steps if progress.total_steps < NEVER else 0,
            self._steps_per_epoch,
            progress.samples,
            progress.seconds,
            self._throughput.per_second,
            progress.fraction,
        )


_MIN_SPAN_SECONDS = 1.0
_FIRST_SPAN_SECONDS = 0.05


class ThroughputMeter:
    """Measures samples per second of training time over about the last two seconds."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._samples, self._seconds = -1, 0.0

    def update(self, samples: int, seconds: float) -> None:
        """Adds a measurement: ``samples`` so far, in ``seconds`` of training time so far."""
        span = seconds - self._seconds
        if self._samples < 0:
            self._samples, self._seconds = samples, seconds
        elif span >= (_MIN_SPAN_SECONDS if self.per_second else _FIRST_SPAN_SECONDS):
            rate = (samples - self._samples) / span
            self.per_second = (self.per_second + rate) / 2 if self.per_second else rate
            self._samples, self._seconds = samples, seconds
