"""Averaged weights in a training loop written by hand: an exponential mean that an evaluation uses.

python examples/averaged_weights.py
"""

from __future__ import annotations

import torch
from torch import nn

from roost.train.optim.weight_average import Average


def main() -> None:
    """Trains three steps and compares the trained weights with their average."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = Average(method="ema", decay=0.9)  # it has state_dict() and load_state_dict()

    def loss() -> torch.Tensor:
        output: torch.Tensor = model(torch.ones(4, 2))
        return output.square().mean()

    for _ in range(3):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        average.update(model)
    with torch.no_grad():
        trained = float(loss())
        with average.swapped(model):  # the model holds the average inside, its own weights afterwards
            averaged = float(loss())
    print(f"updates {average.count}  trained {trained:.4f}  averaged {averaged:.4f}")


if __name__ == "__main__":
    main()
