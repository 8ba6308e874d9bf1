"""Epochs of another length than a pass over the set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draws, Plan


@dataclass(frozen=True)
class VirtualEpochs:
    """Epochs of so many batches, cut out of the endless batches of another plan.

    Each epoch goes on where the one before stopped, whatever the length of a pass, so every sample comes as
    often as in the other plan; so do its turns.

    Args:
        whole: That plan.
        num_batches: Batches in an epoch; more or fewer than ``whole`` has.

    Raises:
        ConfigError: That is not one batch.
    """

    whole: Plan
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
        """Samples in the set."""
        return self.whole.num_samples

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """The batches of one epoch from batch number ``start`` on."""
        remaining = self.num_batches - start
        turn, first = divmod(epoch * self.num_batches + start, self.whole.num_batches)
        while remaining > 0:
            num_taken = min(remaining, self.whole.num_batches - first)
            yield from itertools.islice(self.whole.batches(turn, first), num_taken)
            remaining, turn, first = remaining - num_taken, turn + 1, 0

    def describe(self) -> str:
        """What a person should know."""
        return f"epochs of {self.num_batches:,} batches, one after the other out of: {self.whole.describe()}"


@dataclass(frozen=True)
class LimitedEpochs:
    """The first batches of each epoch of another plan.

    Args:
        whole: That plan.
        num_batches: So many; all where it has fewer.

    Raises:
        ConfigError: That is not one batch.
    """

    whole: Plan
    num_batches: int

    def __post_init__(self) -> None:
        if self.num_batches < 1:
            raise ConfigError(
                "a limit must leave at least one batch",
                received=self.num_batches,
                fix="give a number above 0, or leave the limit out",
            )
        object.__setattr__(self, "num_batches", min(self.num_batches, self.whole.num_batches))

    @property
    def num_samples(self) -> int:
        """Samples in the set."""
        return self.whole.num_samples

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """The batches of one epoch from batch number ``start`` on."""
        if start < self.num_batches:
            yield from itertools.islice(self.whole.batches(epoch, start), self.num_batches - start)

    def describe(self) -> str:
        """What a person should know."""
        return f"the first {self.num_batches:,} batches of: {self.whole.describe()}"
