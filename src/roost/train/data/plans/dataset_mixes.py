"""Plans of several sets: combined (a batch of each at once), chained, and mixed by weight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draw, Plan, format_epoch_length
from roost.train.data.plans.permutations import (
    Int64Array,
    cache_latest,
    check_not_empty,
    generator,
    num_batches_of,
)
from roost.train.data.plans.sample_columns import weights_of
from roost.train.data.plans.virtual_epochs import VirtualEpochs
from roost.train.step.seeding import mix


@dataclass(frozen=True)
class CombinedPlan:
    """A batch of each of several sets at once, by name, like Lightning's CombinedLoader.

    Each set continues in the next epoch where it stopped, so every sample of each set is used.

    Args:
        plans: The plan of each set, by name.
        how: An epoch has as many batches as the set with the fewest (``min_size``), or as the set with the
            most (``max_size_cycle``), while the others begin again.
    """

    plans: Mapping[str, Plan]
    how: Literal["min_size", "max_size_cycle"] = "min_size"

    def __post_init__(self) -> None:
        if not self.plans:
            raise ConfigError("there is no set to train on", fix="check what Dataset.build() returns")

    @property
    def num_samples(self) -> int:
        return sum(plan.num_samples for plan in self.plans.values())

    @property
    def num_batches(self) -> int:
        sizes = [plan.num_batches for plan in self.plans.values()]
        return min(sizes) if self.how == "min_size" else max(sizes)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Mapping[str, Draw]]:
        parts = [VirtualEpochs(plan, self.num_batches).batches(epoch, start) for plan in self.plans.values()]
        for draws in zip(*parts, strict=True):
            yield dict(zip(self.plans, map(_single_draw, draws), strict=True))

    def describe(self) -> str:
        parts = "; ".join(f"{name}: {plan.describe()}" for name, plan in self.plans.items())
        length = "smallest" if self.how == "min_size" else "largest"
        count = f"as many as the {length} has, {format_epoch_length(self.num_batches)}"
        return f"a batch of each set at once, {count} ({parts})"


@dataclass(frozen=True)
class ChainedPlan:
    """All batches of the first set, then all of the next.

    Args:
        parts: The plan of each set, and the index of its first sample in ``torch.utils.data.ConcatDataset``.
    """

    parts: Sequence[tuple[Plan, int]]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("there is no set to train on", fix="check what Dataset.build() returns")

    @property
    def num_samples(self) -> int:
        return sum(plan.num_samples for plan, _ in self.parts)

    @property
    def num_batches(self) -> int:
        return sum(plan.num_batches for plan, _ in self.parts)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        for plan, offset in self.parts:
            if start < plan.num_batches:
                for draw in map(_single_draw, plan.batches(epoch, start)):
                    yield Draw([index + offset for index in draw.indices], draw.turn)
            start = max(0, start - plan.num_batches)

    def describe(self) -> str:
        return "one set after the other: " + "; then ".join(plan.describe() for plan, _ in self.parts)


@dataclass(frozen=True)
class MixedPlan:
    """Batches of equal size with samples of several sets in fixed proportions.

    Every epoch has the same number of samples of each set, at shuffled positions. The samples of one set come
    from endless passes over it, each in its own order, so all are drawn equally often; the number of the pass
    is their turn.

    Args:
        sizes: Samples of each set; indices are those of ``torch.utils.data.ConcatDataset``.
        weights: A finite number of 0 or more for each set; only the ratios count.
        batch_size: Samples a batch.
        seed: Seed of the order.
        num_draws: Samples an epoch; None: as many as all sets have.
        drop_last: Leave out an incomplete last batch; its samples do not come later.

    Raises:
        ConfigError: The weights are not such numbers, or all 0; a set is empty or gets no sample; an epoch
            has no batch.
    """

    sizes: Sequence[int]
    weights: Sequence[float]
    batch_size: int
    _: KW_ONLY
    seed: int
    num_draws: int | None = None
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_not_empty(self.num_samples, self.num_batches, self.batch_size, num_draws=self.num_draws)
        for number, (size, weight, count) in enumerate(
            zip(self.sizes, self.weights, self.counts, strict=True)
        ):
            if size < 1 and weight > 0:
                fix = "check what Dataset.build() returns"
                raise ConfigError(f"set {number} of the mix is empty", fix=fix)
            if count < 1 and weight > 0:
                raise ConfigError(
                    f"none of the {self._num_draws:,} samples of an epoch would be from set {number}",
                    setting="data.mix.weights",
                    received=weight,
                    fix="give it a larger weight, or 0",
                )

    @property
    def num_samples(self) -> int:
        return sum(self.sizes)

    @property
    def num_batches(self) -> int:
        return num_batches_of(self._num_draws, self.batch_size, self.drop_last)

    @cached_property
    def counts(self) -> list[int]:
        """Samples of each set in every epoch: proportional, rounded by the largest remainders."""
        weights = weights_of(self.weights, setting="data.mix.weights", set_size=len(self.sizes), of="set")
        shares = weights / weights.sum() * self._num_draws
        counts = np.floor(shares).astype(np.int64)
        counts[np.argsort(counts - shares, kind="stable")[: self._num_draws - counts.sum()]] += 1
        return [int(count) for count in counts]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        indices, turns = self._order(epoch)
        for batch in range(start, self.num_batches):
            part = slice(batch * self.batch_size, (batch + 1) * self.batch_size)
            yield Draw(indices[part].tolist(), turns[part].tolist())

    def describe(self) -> str:
        counts = " + ".join(f"{count:,}" for count in self.counts)
        return (
            f"{len(self.counts)} sets in every batch by weight, {counts} samples an epoch, "
            f"{self.batch_size:,} samples a batch, {format_epoch_length(self.num_batches)}"
        )

    @property
    def _num_draws(self) -> int:
        return self.num_samples if self.num_draws is None else self.num_draws

    @cached_property
    def _passes(self) -> list[EndlessOrder]:
        return [EndlessOrder(size, mix(self.seed, "set", number)) for number, size in enumerate(self.sizes)]

    @cache_latest
    def _order(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        sets = np.repeat(np.arange(len(self.sizes)), self.counts)
        sets = generator(self.seed, "mixed", epoch).permutation(sets)
        indices, turns = np.empty_like(sets), np.empty_like(sets)
        offsets = itertools.accumulate(self.sizes, initial=0)
        for number, (passes, count, offset) in enumerate(
            zip(self._passes, self.counts, offsets, strict=False)
        ):
            if count:
                places = sets == number
                found, turns[places] = passes.between(epoch * count, (epoch + 1) * count)
                indices[places] = found + offset
        return indices, turns


def _single_draw(draws: object) -> Draw:
    assert isinstance(draws, Draw), "a plan of several sets within another"
    return draws


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
