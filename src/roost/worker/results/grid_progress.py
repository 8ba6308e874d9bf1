"""The position of an evaluation in its grid, for the bar and the list of tasks."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from roost.evaluation.cell_run import Share
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.package.live_progress import PHASES, ProgressFile, ProgressReader
from roost.package.results.evaluations.evaluation_folder import Grid

_SUM_SECONDS = 0.1
"""A bar is not drawn more often."""


class GridProgress:
    """Counts the samples of the grid that have rows. Each rank publishes how many of its share have, and, in
    turn with the others, the sum of all ranks, which readers show.

    Args:
        folder: The folder of the evaluation.
        grid: Its grid, as the session found it.
        share: The rank's share of each cell.
        training: The progress file of the training that this evaluation follows, whose first record remains
            that of the training.
    """

    def __init__(self, folder: Path, grid: Grid, share: Share, training: Path | None = None) -> None:
        path = folder / "progress"
        self._own = [ProgressFile(path, record=share.rank + 1)]
        if training is not None:
            self._own.append(ProgressFile(training, record=share.rank + 1))
        self._sum = ProgressFile(path)
        self._sum_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        """The rank that holds a lock on it publishes the sum."""
        self._next_sum = 0.0
        self._ranks = [ProgressReader(path, record=rank + 1) for rank in range(share.world_size)]
        computed = [one for one in grid.cells if one.same_as is None]
        self._total = sum(one.samples for one in computed)
        finished = sum(one.samples for one in computed if one.state == "finished")
        self._done = finished if share.rank == 0 else 0
        """Samples of this rank's share that have rows; of the first rank with those of finished cells."""
        self._share, self._began = share, time.monotonic()
        self._num_cells = len(grid.cells)
        self._cell = sum(one.state == "finished" for one in grid.cells)
        self._computed = 0
        """Samples that this rank has computed in this session."""

    def begin(self, finished: set[int], evaluated: EvaluatedSet) -> None:
        """Begins a cell: counts the batches of this rank that have rows already."""
        own = range(self._share.rank, len(evaluated.sizes), self._share.world_size)
        self._done += sum(evaluated.sizes[number] for number in own if number in finished)
        self._cell += 1
        self._publish("testing")

    def advance(self, samples: int) -> None:
        """Counts samples of this rank."""
        self._computed += samples
        self._done += samples
        self._publish("testing")

    def end(self) -> None:
        """Publishes that this rank has computed its share of the whole grid."""
        self._publish("ended")
        os.close(self._sum_fd)

    def _publish(self, phase: str) -> None:
        now = time.monotonic()
        seconds = now - self._began
        rate = self._computed / max(seconds, 1e-9)
        for board in self._own:
            self._publish_to(board, self._cell, self._share.session, phase, self._done, seconds, rate)
        if phase == "ended" or now >= self._next_sum:
            self._next_sum = now + _SUM_SECONDS
            self._publish_sum(seconds, waits=phase == "ended")

    def _publish_sum(self, seconds: float, *, waits: bool) -> None:
        try:
            fcntl.flock(self._sum_fd, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return  # another rank publishes it
        read = [rank.read() for rank in self._ranks]
        found = [one for one in read if one is not None and one.epoch == self._share.session]
        working = [one for one in found if one.phase != "ended"]
        is_ended = not working and len(found) == len(self._ranks)
        done = self._total if is_ended else min(self._total, sum(one.samples for one in found))
        rate = sum(one.samples_per_second for one in working)
        # The remaining time is estimated as seconds x (1 / fraction - 1): what earlier sessions computed must
        # not make it look faster.
        seconds = done / rate if rate else seconds
        cell = max(one.step for one in found)
        self._sum.take_up()
        self._publish_to(self._sum, cell, 0, "ended" if is_ended else "testing", done, seconds, rate)
        fcntl.flock(self._sum_fd, fcntl.LOCK_UN)

    def _publish_to(
        self, board: ProgressFile, cell: int, session: int, phase: str, done: int, seconds: float, rate: float
    ) -> None:
        fraction = done / self._total if self._total else 1.0
        number = PHASES.index(phase)
        board.publish(cell, session, 0, number, self._num_cells, 0, done, seconds, rate, fraction)
