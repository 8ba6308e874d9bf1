"""The order of the data, as one pure function of the settings, the seed and the epoch."""

from __future__ import annotations

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
    """In the set."""
    turn: int | list[int]
    """Which drawing of a sample this is, of all or of each: with the index it decides what the sample draws
    at random. Where each sample comes once an epoch it is the epoch."""


class PaddingDraw(Draw):
    """Drawn only because a rank must compute something: it counts as no sample."""


Draws = Draw | Mapping[str, Draw]
"""What one batch is made of: samples of one set, or of each set by name."""


def format_epoch_length(num_batches: int) -> str:
    """``4 batches an epoch``"""
    return f"{num_batches:,} batch{'' if num_batches == 1 else 'es'} an epoch"


class Plan(Protocol):
    """Which samples make which batch, of one set or of several.

    A plan is pure: equal plans give equal batches, any position can be asked for at once, so a resume reads
    no sample twice, and nothing depends on who fetches the batches.
    """

    @property
    def num_samples(self) -> int:
        """Samples in the set; every index is below."""

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, the same in every epoch and for every rank."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """The batches of one epoch from batch number ``start`` on."""

    def describe(self) -> str:
        """What a person should know: ``shuffled, 16 samples a batch, 4 batches an epoch``."""


def num_samples_of(draws: Draws) -> int:
    """Samples in one batch; none where it is drawn to stand in."""
    if isinstance(draws, Draw):
        return 0 if isinstance(draws, PaddingDraw) else len(draws.indices)
    return sum(num_samples_of(draw) for draw in draws.values())


def is_padding(draws: Draws) -> bool:
    """Whether a batch is drawn to stand in."""
    parts = [draws] if isinstance(draws, Draw) else draws.values()
    return any(isinstance(draw, PaddingDraw) for draw in parts)


@dataclass(frozen=True)
class BatchPlan:
    """Batches of one size, each sample once an epoch.

    Args:
        num_samples: Samples in the set.
        batch_size: Samples a batch.
        seed: Seed of the order.
        shuffle: A fresh order each epoch, else the set's own.
        drop_last: Leave out a last batch that is not full.

    Raises:
        ConfigError: There is no sample, or not one batch.
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
        """Batches in an epoch."""
        return num_batches_of(self.num_samples, self.batch_size, self.drop_last)

    @cache_latest
    def order(self, epoch: int) -> Int64Array:
        """(num_samples,) the indices in the order of ``epoch``; read it only, it is kept."""
        if not self.shuffle:
            return np.arange(self.num_samples)
        try:
            return generator(self.seed, "order", epoch).permutation(self.num_samples)
        except MemoryError as error:
            raise ConfigError(
                f"the order of {self.num_samples:,} samples does not fit into memory: {error}",
                setting="data.shuffle",
                received=True,
                fix="is the dataset's len() right? data.shuffle: false needs no memory for it",
            ) from error

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        """The batches of one epoch from batch number ``start`` on.

        Raises:
            ConfigError: So many samples cannot be shuffled in memory.
        """
        order = self.order(epoch) if self.shuffle else range(self.num_samples)
        for batch in range(start, self.num_batches):
            part = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield Draw(list(part) if isinstance(part, range) else part.tolist(), epoch)

    def describe(self) -> str:
        """What a person should know."""
        order = "shuffled" if self.shuffle else "in the set's order"
        return f"{order}, {self.batch_size:,} samples a batch, {format_epoch_length(self.num_batches)}"
