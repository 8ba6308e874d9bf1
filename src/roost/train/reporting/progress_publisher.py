"""Telling the world where a run is."""

from __future__ import annotations

from roost.base.interval import NEVER
from roost.package.live_progress import PHASES, ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.throughput import ThroughputMeter


class ProgressPublisher:
    """Publishes a run's progress on a board, with its recent throughput.

    Args:
        board: Where; nowhere when None.
        steps_per_epoch: Steps in an epoch.
    """

    def __init__(self, board: ProgressFile | None, *, steps_per_epoch: int) -> None:
        self._board, self._steps_per_epoch = board, steps_per_epoch
        self._throughput = ThroughputMeter()
        self.phase, self.count = "starting", 0
        """What was told last, and how often anything was: a loop that is held up tells nothing."""

    def publish(self, progress: Progress, phase: str) -> None:
        """Puts it on the board; about a microsecond, and nothing a reader could meet half-done."""
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
