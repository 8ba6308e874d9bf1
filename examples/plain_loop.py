"""A training loop written by hand, from roost's parts alone: no config, no package, no Trainer.

    python examples/plain_loop.py FOLDER

Kill it at any moment and start it again: it goes on from its newest checkpoint and ends with the very weights
that it would have had.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import closing

import torch
from torch import Tensor, nn

import roost
from roost.train.checkpointing.rank_state import RankState
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.progress import Progress
from roost.train.step import seeding

SEED, EPOCHS, LOG_EVERY, SAVE_EVERY = 0, 25, 50, 80


class Disc(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Points (2,), and whether they lie in a disc (). A point moves a little each time it is drawn."""

    def __init__(self) -> None:
        self.points = 2 * torch.rand(1000, 2, generator=torch.Generator().manual_seed(1)) - 1
        self.inside = (self.points.norm(dim=1) < 0.8).float()

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # The loader seeds torch, NumPy and Python by (seed, epoch, index): this needs no state of its own.
        return self.points[index] + 0.02 * torch.randn(2), self.inside[index]


def main(folder: str) -> None:
    """Trains, or goes on with a training that was cut."""
    data = Disc()
    loader = roost.Loader(data, plan=BatchPlan(len(data), batch_size=50, seed=SEED), seed=SEED)

    seeding.seed_all(SEED)  # the weights, and then the dropout
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    stepper = roost.Stepper(torch.optim.Adam(model.parameters(), lr=1e-2))
    progress, events, generators = Progress(), roost.Events(), RankState()

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        points, inside = batch
        return nn.functional.binary_cross_entropy_with_logits(model(points).squeeze(1), inside)

    # All that the next step depends on. Events: the mean that is not printed yet.
    state = {"model": model, "stepper": stepper, "progress": progress, "events": events, "rng": generators}
    checkpoints = roost.Checkpoints(folder)
    checkpoints.load(state)
    generators.restore()  # last, because building things may have drawn from them
    print(f"begin at step {progress.step}", flush=True)

    # From the middle of an epoch, at no cost; closing ends the loader's workers, if it has any.
    with closing(loader.epochs(progress.epoch, progress.batch)) as batches:
        while progress.epoch < EPOCHS:
            batch = next(batches)
            events.put(stepper.run(loss, [batch.value]), batch.num_samples)
            progress.advance(batches=1, samples=batch.num_samples, last=batch.ends_epoch)
            if progress.step % LOG_EVERY == 0:
                print(f"step {progress.step}  loss {events.row()['loss']}", flush=True)
            if progress.step % SAVE_EVERY == 0:
                checkpoints.save(state, progress)

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"weights {hashlib.sha256(weights.numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1])
