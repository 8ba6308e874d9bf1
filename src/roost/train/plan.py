"""The order of the data, as one pure function of the settings, the seed and the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roost.base.errors import ConfigError
from roost.train.seeding import mix


@dataclass(frozen=True)
class BatchPlan:
    """Which samples make which batch.

    Any position can be asked for directly, so a resume reads no sample twice; nothing depends on worker
    processes; and the batches of all ranks together are the same for any number of ranks.

    Args:
        num_samples: Samples in the set.
        batch_size: Samples per batch and rank.
        seed: Seed of the order.
        shuffle: A fresh order each epoch, else the set's own.
        drop_last: Leave out a last batch that is not full.
        rank, world: This rank's share.

    Raises:
        ConfigError: There is no sample, or not one batch.
    """

    num_samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ConfigError("the dataset is empty", fix="look at what Dataset.build() returns")
        if self.num_batches < 1:
            raise ConfigError(
                f"the dataset has {self.num_samples} samples, which is not one batch",
                setting="data.batch_size",
                received=self.batch_size,
                fix="make data.batch_size smaller, or set data.drop_last=false",
            )

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, the same for every rank."""
        span = self.batch_size * self.world
        return self.num_samples // span if self.drop_last else -(-self.num_samples // span)

    def size(self, batch: int) -> int:
        """Samples of this rank in batch number ``batch`` of any epoch."""
        begin = batch * self.batch_size * self.world + self.rank * self.batch_size
        return max(0, min(self.batch_size, self.num_samples - begin))

    def order(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """(num_samples,) the indices in the order of ``epoch``."""
        if not self.shuffle:
            return np.arange(self.num_samples)
        generator = np.random.Generator(np.random.PCG64(mix(self.seed, "order", epoch)))
        return generator.permutation(self.num_samples)

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """The batches of one epoch as lists of indices, from batch number ``start`` on."""
        order = self.order(epoch)
        span = self.batch_size * self.world
        for batch in range(start, self.num_batches):
            shared = order[batch * span : (batch + 1) * span]
            yield shared[self.rank * self.batch_size : (self.rank + 1) * self.batch_size].tolist()
