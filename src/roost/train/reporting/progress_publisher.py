"""The publisher of a run's progress record."""

from __future__ import annotations

from roost.base.interval import NEVER
from roost.package.live_progress import PHASES, ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.throughput import ThroughputMeter


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
