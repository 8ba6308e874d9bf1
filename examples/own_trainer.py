"""A Trainer without config and package: the runner, the data and the hooks are given by hand.

    python examples/own_trainer.py FOLDER

Kill it at any moment and start it again: it continues from its newest checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import roost
from roost.train.hooks import Console, EarlyStop, Records, Save, Validate


class Line(roost.Runner):
    """Learns y = 3 x."""

    def build(self) -> None:
        """Creates the modules."""
        self.net = nn.Linear(1, 1)

    def loss(self, batch: Tensor) -> Tensor:
        """The mean squared error."""
        error: Tensor = self.net(batch) - 3 * batch
        return error.square().mean()


def main(folder: Path) -> str:
    """Trains, or continues a training that was interrupted."""
    torch.manual_seed(0)
    runner = Line()
    runner.build()
    rows = list(torch.rand(64, 1))
    trainer = roost.Trainer(
        runner,
        {
            "train": roost.Loader(rows[:48], plan=roost.BatchPlan(48, 8)),
            "valid": roost.Loader(rows[48:], plan=roost.BatchPlan(16, 16, shuffle=False)),
        },
        roost.Stepper(torch.optim.SGD(runner.parameters(), lr=0.1)),
        hooks=[
            Validate("1ep"),
            EarlyStop("valid/loss", patience=3),
            Records(folder / "records", "2/ep"),
            Save("1ep"),
            Console(),
        ],
        checkpoints=roost.Checkpoints(folder / "checkpoints"),
        until="5ep",
    )
    print(trainer.plan())
    return trainer.fit()


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
