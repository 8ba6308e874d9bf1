"""What one rank takes of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roost.train.data.plans.batch_plan import Draw, Draws, PaddingDraw, Plan


def shard_slice(num_samples: int, rank: int, world: int) -> slice:
    """A rank's run of a batch: as long as any other's, give or take one sample; rank 0 has the most."""
    first, end = (-(-num_samples * one // world) for one in (rank, rank + 1))
    return slice(first, end)


@dataclass(frozen=True)
class ShardedPlan:
    """One rank's share of another plan's batches.

    Each batch is cut into runs (`shard_slice`), in the order of the ranks. So all ranks together take exactly the
    batches of one process, in its order, whatever their number. Where a batch has fewer samples than there
    are ranks, those left over stand in: they draw its first one, which then counts as none, because a rank
    that computes nothing would hold up the others.

    Args:
        whole: The plan of all ranks.
        rank: Whose share.
        world: Number of ranks.
    """

    whole: Plan
    rank: int
    world: int

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.world

    @property
    def num_samples(self) -> int:
        """Samples in the set."""
        return self.whole.num_samples

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, the same for every rank."""
        return self.whole.num_batches

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """This rank's share of the batches of one epoch from batch number ``start`` on."""
        for draws in self.whole.batches(epoch, start):
            parts = {"": draws} if isinstance(draws, Draw) else draws
            # Of a batch of several sets each rank has some of each, or stands in.
            sizes = [len(draw.indices) for draw in parts.values() if draw.indices]
            world = min([self.world, *sizes])
            is_left_over = self.rank >= world
            shares = {
                name: PaddingDraw(*_slice_draw(one, slice(1)))
                if is_left_over
                else _slice_draw(one, shard_slice(len(one.indices), self.rank, world))
                for name, one in parts.items()
            }
            yield shares[""] if isinstance(draws, Draw) else shares

    def describe(self) -> str:
        """What a person should know."""
        return f"share {self.rank + 1} of {self.world} of: {self.whole.describe()}"


def _slice_draw(draw: Draw, part: slice) -> Draw:
    return Draw(draw.indices[part], draw.turn if isinstance(draw.turn, int) else draw.turn[part])
