"""`ShardedPlan`: the part of each batch that one rank takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roost.train.data.plans.batch_plan import Draw, Draws, PaddingDraw, Plan


def shard_slice(num_samples: int, rank: int, world_size: int) -> slice:
    """Returns a rank's contiguous part of a batch. The parts differ by at most one sample; rank 0 has the
    most."""
    first, end = (-(-num_samples * one // world_size) for one in (rank, rank + 1))
    return slice(first, end)


@dataclass(frozen=True)
class ShardedPlan:
    """One rank's shard of another plan's batches.

    Each batch is cut into contiguous parts (`shard_slice`) in the order of the ranks. So all ranks together
    take exactly the batches of one process, in its order, for any number of ranks. If a batch has fewer
    samples than there are ranks, the remaining ranks draw its first sample as padding, which counts as no
    sample: a rank that computes nothing would block the others in their collectives.

    Args:
        base: The plan of all ranks.
        rank: The rank of the shard.
        world_size: Number of ranks.
    """

    base: Plan
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.world_size

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    @property
    def num_batches(self) -> int:
        return self.base.num_batches

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """Yields this rank's shard of the batches of one epoch from batch number ``start``."""
        for draws in self.base.batches(epoch, start):
            parts = {"": draws} if isinstance(draws, Draw) else draws
            # Of a batch of several sets, a rank has samples of each set, or padding.
            sizes = [len(draw.indices) for draw in parts.values() if draw.indices]
            world_size = min([self.world_size, *sizes])
            is_padded = self.rank >= world_size
            shards = {
                name: PaddingDraw(*_slice_draw(one, slice(1)))
                if is_padded
                else _slice_draw(one, shard_slice(len(one.indices), self.rank, world_size))
                for name, one in parts.items()
            }
            yield shards[""] if isinstance(draws, Draw) else shards

    def describe(self) -> str:
        return f"shard {self.rank + 1} of {self.world_size} of: {self.base.describe()}"


def _slice_draw(draw: Draw, part: slice) -> Draw:
    return Draw(draw.indices[part], draw.turn if isinstance(draw.turn, int) else draw.turn[part])
