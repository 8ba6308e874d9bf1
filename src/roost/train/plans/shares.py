"""What one rank takes of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roost.train.plans.plan import Draw, Draws, Plan


@dataclass(frozen=True)
class Shared:
    """One rank's share of another plan's batches.

    Each batch is cut into runs of the same length, give or take one sample, in the order of the ranks; where
    there are fewer samples than ranks, some shares are empty. So all ranks together take exactly the batches
    of one process, in its order: none is filled up, and an evaluation counts each sample once.

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
            if isinstance(draws, Draw):
                yield self._share(draws)
            else:
                yield {name: self._share(draw) for name, draw in draws.items()}

    def in_words(self) -> str:
        """What a person should know."""
        return f"share {self.rank + 1} of {self.world} of: {self.whole.in_words()}"

    def _share(self, draw: Draw) -> Draw:
        num_samples = len(draw.indices)
        part = slice(num_samples * self.rank // self.world, num_samples * (self.rank + 1) // self.world)
        return Draw(draw.indices[part], draw.turn if isinstance(draw.turn, int) else draw.turn[part])
