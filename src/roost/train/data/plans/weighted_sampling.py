"""Samples drawn with replacement, each as often as its weight says."""

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
    """Batches of one size, of samples drawn with replacement by weight.

    The first drawing of a sample in an epoch has the epoch as its turn, each further one a number of its own:
    what a sample draws at random is never drawn twice.

    Args:
        weights: (num_samples,) finite numbers of 0 or more; only their ratios count.
        batch_size: Samples a batch.
        seed: Seed of the drawing.
        num_draws: Samples an epoch; as many as the set has when None.
        drop_last: Leave out a last batch that is not full.
        set_size: Samples of the set, where it is known: then the number of weights is checked.

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
        """Samples in the set."""
        return len(self._cumulative)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return num_batches_of(self._num_draws, self.batch_size, self.drop_last)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        """The batches of one epoch from batch number ``start`` on."""
        indices, turns = self._order(epoch)
        for batch in range(start, self.num_batches):
            part = slice(batch * self.batch_size, (batch + 1) * self.batch_size)
            yield Draw(indices[part].tolist(), turns[part].tolist())

    def describe(self) -> str:
        """What a person should know."""
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
        drawing = generator(self.seed, "weighted", epoch)
        # Looking up sorted numbers and shuffling what was found takes a quarter of the time of looking them
        # up in their own order, and drawings of one sample lie side by side, where they are easy to count.
        heights = np.sort(drawing.random(self._num_draws)) * self._cumulative[-1]
        indices = np.searchsorted(self._cumulative, heights, side="right")
        # A height may be rounded up to the whole sum, above which there is nothing.
        indices = np.minimum(indices, np.searchsorted(self._cumulative, self._cumulative[-1], side="left"))
        shuffled = drawing.permutation(self._num_draws)
        return indices[shuffled], turns(epoch, occurrences(indices))[shuffled]


def occurrences(ascending: Int64Array) -> Int64Array:
    """(n,) how often each number has already come in a row of ascending ones."""
    places = np.arange(len(ascending))
    is_first = np.append(True, ascending[1:] != ascending[:-1])
    return places - np.maximum.accumulate(np.where(is_first, places, 0))


def turns(epoch: int, occurrence: Int64Array) -> Int64Array:
    """(n,) a number for each pair of epoch and occurrence: the epoch for occurrence 0, else a 63-bit hash of
    both (a round of splitmix64, see `roost.train.step.seeding.mix`), so that two pairs share one in no
    run."""
    state = occurrence.astype(np.uint64) ^ np.uint64(mix("again", epoch))
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return np.where(occurrence == 0, epoch, (state >> np.uint64(1)).astype(np.int64))
