"""One pass over a set after another, without end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roost.train.data.plans.permutations import Int64Array, cache_latest, generator

_MIN_BLOCK_SAMPLES = 4096


@dataclass(frozen=True)
class EndlessOrder:
    """The indices of a set in endless passes, each in an order of its own.

    Args:
        size: Samples in the set.
        seed: Seed of the orders.
    """

    size: int
    seed: int

    def between(self, begin: int, end: int) -> tuple[Int64Array, Int64Array]:
        """The samples number ``begin`` to ``end`` of these passes, in time that does not depend on ``begin``.

        Returns:
            (end - begin,) their indices, and (end - begin,) the number of the pass of each.
        """
        first, last = begin // self._num_together, -(-end // self._num_together)
        orders = [np.arange(0), *map(self._together, range(first, last))]
        found = np.concatenate(orders)[begin - first * self._num_together :][: end - begin]
        return found, np.arange(begin, end) // self.size

    @property
    def _num_passes_together(self) -> int:
        # A generator takes 15 µs to make: one for each pass of ten samples would be most of the time.
        return max(1, _MIN_BLOCK_SAMPLES // self.size)

    @property
    def _num_together(self) -> int:
        return self._num_passes_together * self.size

    @cache_latest
    def _together(self, number: int) -> Int64Array:
        passes = np.tile(np.arange(self.size), (self._num_passes_together, 1))
        found: Int64Array = generator(self.seed, "passes", number).permuted(passes, axis=1).ravel()
        return found
