"""The position of an evaluation in its grid, for the bar and the list of tasks."""

from __future__ import annotations

import time
from pathlib import Path

from roost.evaluation.cell_run import Share
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.grid import Grid, GridCell
from roost.package.live_progress import PHASES, ProgressFile


class GridProgress:
    """Estimates the position in the grid from one rank's share of the cells. Each rank publishes its own;
    that of rank 0 is shown.

    Args:
        folder: The folder of the evaluation.
        grid: Its grid, as the session found it.
        share: The rank's share of each cell.
        training: The progress file of the training that this evaluation follows, whose first record remains
            that of the training.
    """

    def __init__(self, folder: Path, grid: Grid, share: Share, training: Path | None = None) -> None:
        self._boards = [ProgressFile(folder / "progress", record=share.rank)]
        if training is not None:
            self._boards.append(ProgressFile(training, record=share.rank + 1))
        computed = [one for one in grid.cells if one.same_as is None]
        self._total = sum(one.samples for one in computed)
        self._earlier_cells = sum(one.samples for one in computed if one.state == "finished")
        """Samples of the cells in front of the current one."""
        self._share, self._began = share, time.monotonic()
        self._cell_samples, self._cell_done, self._scale = 0, 0.0, 0.0
        self._num_cells = len(grid.cells)
        self._cell = sum(one.state == "finished" for one in grid.cells)
        self._computed = 0
        """Samples that this rank has computed in this session."""

    def begin(self, one: GridCell, finished: set[int], evaluated: EvaluatedSet) -> None:
        """Begins a cell: counts the batches that have rows already."""
        own = range(self._share.rank, len(evaluated.sizes), self._share.world_size)
        all_own = sum(evaluated.sizes[number] for number in own)
        rest = sum(evaluated.sizes[number] for number in own if number not in finished)
        self._earlier_cells += self._cell_samples
        self._cell += 1
        self._cell_samples = one.samples
        self._cell_done = one.samples * (1 - rest / all_own) if all_own else 0.0
        self._scale = one.samples / all_own if all_own else 0.0
        self._publish("testing", self._earlier_cells + self._cell_done)

    def advance(self, samples: int) -> None:
        """Counts samples of this rank."""
        self._computed += samples
        self._cell_done += samples * self._scale
        self._publish("testing", self._earlier_cells + self._cell_done)

    def end(self) -> None:
        """Publishes that the whole grid is computed."""
        self._publish("ended", self._total)

    def _publish(self, phase: str, done: float) -> None:
        seconds = time.monotonic() - self._began
        done = min(self._total, done)
        fraction = done / self._total if self._total else 1.0
        rate = self._computed * self._share.world_size / max(seconds, 1e-9)
        # The remaining time is estimated as seconds x (1 / fraction - 1): what earlier sessions computed must
        # not make it look faster.
        shown = done / rate if rate else seconds
        for board in self._boards:
            board.publish(
                self._cell, 0, 0, PHASES.index(phase), self._num_cells, 0, int(done), shown, rate, fraction
            )
