"""Epochs of another length than one pass over the set: `VirtualEpochs` and `LimitedEpochs`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draws, Plan


@dataclass(frozen=True)
class VirtualEpochs:
    """Epochs of ``num_batches`` batches, cut from the endless batches of another plan.

    Each epoch continues where the one before stopped, independently of the length of a pass. So each sample
    is drawn as often, and with the same turns, as in the other plan.

    Args:
        base: The other plan.
        num_batches: Batches in an epoch; more or fewer than ``base`` has.

    Raises:
        ConfigError: ``num_batches`` is less than 1.
    """

    base: Plan
    num_batches: int

    def __post_init__(self) -> None:
        if self.num_batches < 1:
            raise ConfigError(
                "an epoch must have at least one batch",
                setting="data.steps_per_epoch",
                received=self.num_batches,
                fix="give a number above 0",
            )

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        remaining = self.num_batches - start
        turn, first = divmod(epoch * self.num_batches + start, self.base.num_batches)
        while remaining > 0:
            num_drawn = min(remaining, self.base.num_batches - first)
            yield from itertools.islice(self.base.batches(turn, first), num_drawn)
            remaining, turn, first = remaining - num_drawn, turn + 1, 0

    def describe(self) -> str:
        return f"epochs of {self.num_batches:,} batches, cut in sequence from: {self.base.describe()}"


@dataclass(frozen=True)
class LimitedEpochs:
    """The first batches of each epoch of another plan.

    Args:
        base: The other plan.
        num_batches: Batches in an epoch; all of ``base`` if it has fewer.

    Raises:
        ConfigError: ``num_batches`` is less than 1.
    """

    base: Plan
    num_batches: int

    def __post_init__(self) -> None:
        if self.num_batches < 1:
            raise ConfigError(
                "a limit must leave at least one batch",
                received=self.num_batches,
                fix="give a number above 0, or leave the limit out",
            )
        object.__setattr__(self, "num_batches", min(self.num_batches, self.base.num_batches))

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        if start < self.num_batches:
            yield from itertools.islice(self.base.batches(epoch, start), self.num_batches - start)

    def describe(self) -> str:
        return f"the first {self.num_batches:,} batches of: {self.base.describe()}"
