"""The records of one run, read for a plot: a column at a time, so that many long runs fit into memory."""

from __future__ import annotations

import numpy as np

from roost.operations.curves import history_cache
from roost.operations.curves.history_cache import DamagedCache, History, Series
from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots import x_axis
from roost.package import lineage
from roost.package.package import PackageFolder


class RecordedRun:
    """The records of one run.

    Args:
        package: The package.
        x: The kind of the horizontal axis.
    """

    def __init__(self, package: PackageFolder, x: str = "step") -> None:
        self.package = package
        self._folder = package.path / "records"
        self._has_row_numbers = x in ("epoch", "time", "elapsed")
        self._history = History(self._folder, row_numbers=self._has_row_numbers)
        self.names = self._history.names
        self.starts, self.torn = self._history.starts, self._history.torn
        parent = lineage.parent_of(package)
        self.forked_at = parent.step if parent is not None else None
        """The step at which it was forked from another package."""
        self._positions = x_axis.positions(x, package, self._row_numbers) if self.names else None

    @property
    def has_axis(self) -> bool:
        """Whether its steps have positions on the axis."""
        return self._positions is not None

    def series(self, name: str) -> Series:
        """Returns the steps, ascending, and the values of a recorded name."""
        try:
            return self._history.series(name)
        except DamagedCache:  # or another process has replaced it since
            history_cache.remove_cached(self._folder)
            self._history = History(self._folder, row_numbers=self._has_row_numbers)
            return self._history.series(name)

    def positions(self, steps: NumberArray) -> NumberArray:
        """Returns the positions of steps on the axis."""
        assert self._positions is not None
        return self._positions(steps)

    def step_positions(self, steps: list[int]) -> list[float]:
        """Returns the positions of a few steps on the axis."""
        found: list[float] = self.positions(np.array(steps, np.int64)).tolist()
        return found

    def _row_numbers(self, name: str) -> Series | None:
        try:
            return self.series(name)
        except KeyError:
            return None
