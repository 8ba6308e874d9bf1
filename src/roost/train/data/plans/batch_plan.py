"""`Plan`, the order of the samples as a pure function of seed and epoch, and `BatchPlan`, the usual one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from roost.base.errors import ConfigError
from roost.train.data.plans.permutations import (
    Int64Array,
    cache_latest,
    check_not_empty,
    generator,
    num_batches_of,
)


class Draw(NamedTuple):
    """The samples of one batch."""

    indices: list[int]
    """Indices in the set."""
    turn: int | list[int]
    """Counts the draws of the same sample, for all samples or for each: (turn, index) seeds the random
    numbers of a sample. In a plan that draws each sample once an epoch, it is the epoch."""


class PaddingDraw(Draw):
    """A draw for a rank that must compute, but has no sample of the batch: it counts as no sample."""


Draws = Draw | Mapping[str, Draw]
"""The draws of one batch: of one set, or of each set by name."""


def format_epoch_length(num_batches: int) -> str:
    """Formats the length of an epoch: ``4 batches an epoch``."""
    return f"{num_batches:,} batch{'' if num_batches == 1 else 'es'} an epoch"


class Plan(Protocol):
    """Which samples make which batch, of one set or of several.

    A plan is pure: equal plans give equal batches, and any position is available directly. So a resume reads
    no sample twice, and the batches do not depend on the process that fetches them.
    """

    @property
    def num_samples(self) -> int:
        """Samples in the set, above every index."""

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, the same in every epoch and for every rank."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """Yields the batches of one epoch from batch number ``start``."""

    def describe(self) -> str:
        """Describes the plan for the user: ``shuffled, 16 samples a batch, 4 batches an epoch``."""


def num_samples_of(draws: Draws) -> int:
    """Returns the number of samples in one batch; 0 for padding."""
    if isinstance(draws, Draw):
        return 0 if isinstance(draws, PaddingDraw) else len(draws.indices)
    return sum(num_samples_of(draw) for draw in draws.values())


def is_padding(draws: Draws) -> bool:
    """Whether a batch is padding."""
    parts = [draws] if isinstance(draws, Draw) else draws.values()
    return any(isinstance(draw, PaddingDraw) for draw in parts)


@dataclass(frozen=True)
class BatchPlan:
    """Batches of equal size, each sample once an epoch.

    Args:
        num_samples: Samples in the set.
        batch_size: Samples a batch.
        seed: Seed of the order.
        shuffle: A new random order each epoch; else the order of the set.
        drop_last: Leave out an incomplete last batch.

    Raises:
        ConfigError: There is no sample, or no complete batch.
    """

    num_samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_not_empty(self.num_samples, self.num_batches, self.batch_size)

    @property
    def num_batches(self) -> int:
        return num_batches_of(self.num_samples, self.batch_size, self.drop_last)

    @cache_latest
    def order(self, epoch: int) -> Int64Array:
        """Returns (num_samples,) indices in the order of ``epoch``; the array is cached: do not change it."""
        if not self.shuffle:
            return np.arange(self.num_samples)
        try:
            return generator(self.seed, "order", epoch).permutation(self.num_samples)
        except MemoryError as error:
            raise ConfigError(
                f"the order of {self.num_samples:,} samples does not fit into memory: {error}",
                setting="data.shuffle",
                received=True,
                fix="check the dataset's len(); data.shuffle: false needs no memory for the order",
            ) from error

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        """Yields the batches of one epoch from batch number ``start``.

        Raises:
            ConfigError: The memory does not suffice to shuffle the samples.
        """
        order = self.order(epoch) if self.shuffle else range(self.num_samples)
        for batch in range(start, self.num_batches):
            part = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield Draw(list(part) if isinstance(part, range) else part.tolist(), epoch)

    def describe(self) -> str:
        order = "shuffled" if self.shuffle else "in the set's order"
        return f"{order}, {self.batch_size:,} samples a batch, {format_epoch_length(self.num_batches)}"


@dataclass(frozen=True)
class PlanExcerpt:
    """Some batches of another plan, as if an epoch had no others.

    Args:
        base: The other plan.
        spans: The numbers of these batches, ascending, contiguous or with gaps.
    """

    base: Plan
    spans: tuple[range, ...]

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    @property
    def num_batches(self) -> int:
        return sum(map(len, self.spans))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        for span in self.spans:
            first, start = start, max(0, start - len(span))
            if first < len(span) and span.step > 1:
                for number in span[first:]:  # each by its position, so that no batch between is made
                    yield next(iter(self.base.batches(epoch, number)))
            elif first < len(span):
                yield from itertools.islice(self.base.batches(epoch, span[first]), len(span) - first)

    def describe(self) -> str:
        return f"{self.num_batches:,} batches of: {self.base.describe()}"
