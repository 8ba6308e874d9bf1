"""`WeightedPlan`: samples drawn with replacement, in proportion to their weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from roost.train.data.plans.batch_plan import Draw, format_epoch_length
from roost.train.data.plans.permutations import (
    Int64Array,
    cache_latest,
    check_not_empty,
    generator,
    num_batches_of,
)
from roost.train.data.plans.sample_columns import Float64Array, weights_of
from roost.train.step.seeding import mix


@dataclass(frozen=True, eq=False)
class WeightedPlan:
    """Batches of equal size, of samples drawn with replacement by weight.

    The first draw of a sample in an epoch has the epoch as its turn, each further draw a unique number: so a
    sample is never augmented twice with the same random numbers.

    Args:
        weights: (num_samples,) finite numbers of 0 or more; only the ratios count.
        batch_size: Samples a batch.
        seed: Seed of the draws.
        num_draws: Samples an epoch; None: as many as the set has.
        drop_last: Leave out an incomplete last batch.
        set_size: Samples of the set if known, to check the number of weights.

    Raises:
        ConfigError: The weights are not such numbers, or all 0; there is no sample, or not one batch.
    """

    weights: npt.ArrayLike = field(repr=False)
    batch_size: int
    _: KW_ONLY
    seed: int
    num_draws: int | None = None
    drop_last: bool = False
    set_size: int | None = None

    def __post_init__(self) -> None:
        check_not_empty(self.num_samples, self.num_batches, self.batch_size, num_draws=self.num_draws)

    @property
    def num_samples(self) -> int:
        return len(self._cumulative)

    @property
    def num_batches(self) -> int:
        return num_batches_of(self._num_draws, self.batch_size, self.drop_last)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        indices, turns = self._order(epoch)
        for batch in range(start, self.num_batches):
            part = slice(batch * self.batch_size, (batch + 1) * self.batch_size)
            yield Draw(indices[part].tolist(), turns[part].tolist())

    def describe(self) -> str:
        return (
            f"drawn with replacement by weight, {self._num_draws:,} times an epoch "
            f"from {self.num_samples:,} samples, {self.batch_size:,} samples a batch, "
            f"{format_epoch_length(self.num_batches)}"
        )

    @property
    def _num_draws(self) -> int:
        return self.num_samples if self.num_draws is None else self.num_draws

    @cached_property
    def _cumulative(self) -> Float64Array:
        return np.cumsum(weights_of(self.weights, setting="data.weighted", set_size=self.set_size))

    @cache_latest
    def _order(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        rng = generator(self.seed, "weighted", epoch)
        # Searching sorted numbers and shuffling the result takes a quarter of the time of an unsorted search,
        # and the draws of one sample are adjacent, where they are easy to count.
        heights = np.sort(rng.random(self._num_draws)) * self._cumulative[-1]
        indices = np.searchsorted(self._cumulative, heights, side="right")
        # A height may be rounded up to the total, above the last sample.
        indices = np.minimum(indices, np.searchsorted(self._cumulative, self._cumulative[-1], side="left"))
        shuffled = rng.permutation(self._num_draws)
        return indices[shuffled], turns(epoch, occurrences(indices))[shuffled]


def occurrences(ascending: Int64Array) -> Int64Array:
    """Returns (n,) for each of the ascending numbers how many equal ones come before it."""
    places = np.arange(len(ascending))
    is_first = np.append(True, ascending[1:] != ascending[:-1])
    return places - np.maximum.accumulate(np.where(is_first, places, 0))


def turns(epoch: int, occurrence: Int64Array) -> Int64Array:
    """Returns (n,) a turn for each pair of epoch and occurrence: the epoch for occurrence 0, else a 63-bit
    hash of both (a round of splitmix64, see `roost.train.step.seeding.mix`), so that two pairs do not
    collide."""
    state = occurrence.astype(np.uint64) ^ np.uint64(mix("again", epoch))
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return np.where(occurrence == 0, epoch, (state >> np.uint64(1)).astype(np.int64))
