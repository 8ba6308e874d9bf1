"""`EndlessOrder`: the indices of a set in endless shuffled passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roost.train.data.plans.permutations import Int64Array, cache_latest, generator

_MIN_BLOCK_SAMPLES = 4096
"""Passes are shuffled in blocks of at least so many samples."""


@dataclass(frozen=True)
class EndlessOrder:
    """The indices of a set in endless passes, each in its own random order.

    Args:
        size: Samples in the set.
        seed: Seed of the orders.
    """

    size: int
    seed: int

    def between(self, begin: int, end: int) -> tuple[Int64Array, Int64Array]:
        """Returns the samples at the positions ``begin`` to ``end`` of these passes, in time that does not
        depend on ``begin``: (end - begin,) indices, and (end - begin,) numbers of their passes."""
        first, last = begin // self._block_size, -(-end // self._block_size)
        orders = [np.arange(0), *map(self._block, range(first, last))]
        found = np.concatenate(orders)[begin - first * self._block_size :][: end - begin]
        return found, np.arange(begin, end) // self.size

    @property
    def _passes_per_block(self) -> int:
        # A generator takes 15 µs to make: one for each pass of ten samples would be most of the time.
        return max(1, _MIN_BLOCK_SAMPLES // self.size)

    @property
    def _block_size(self) -> int:
        return self._passes_per_block * self.size

    @cache_latest
    def _block(self, number: int) -> Int64Array:
        passes = np.tile(np.arange(self.size), (self._passes_per_block, 1))
        found: Int64Array = generator(self.seed, "passes", number).permuted(passes, axis=1).ravel()
        return found
