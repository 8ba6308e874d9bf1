"""A project with every kind of randomness that a resume must bring back: augmentation drawn from torch,
NumPy and Python, dropout, batch norm, and draws in the training step itself."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import roost


class Points(torch.utils.data.Dataset[Any]):
    """Random points in two classes, jittered anew each time they are read."""

    def __init__(self, size: int, seed: int, *, jitter: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 1, 4, 4, generator=generator)
        self.y = (self.x.sum((1, 2, 3)) > 0).long()
        self.jitter = jitter

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.x[index] + self.jitter * torch.randn(1, 4, 4)
        x = x * (1 + self.jitter * np.random.rand()) + self.jitter * random.gauss(0, 1)
        return x.float(), self.y[index]


class Dataset(roost.Dataset):
    def build(self) -> roost.Data:
        return roost.Data(
            train=Points(90, 1, jitter=0.1), valid=Points(40, 2, jitter=0.1), test=Points(20, 3, jitter=0)
        )


class Runner(roost.Runner):
    def build(self) -> None:
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64, 2),
        )

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        time.sleep(self.args["pause"])
        logits = (
            self.net(x + 0.01 * torch.randn_like(x)) * (1 + 0.01 * random.random()) + 0.01 * np.random.randn()
        )
        self.log(spread=logits.std())
        return {
            "loss": functional.cross_entropy(logits, y),
            "accuracy": (logits.argmax(1) == y).float().mean(),
        }

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        time.sleep(self.args["pause"])
        logits = self.net(x)
        return {
            "loss": functional.cross_entropy(logits, y, reduction="none"),
            "accuracy": (logits.argmax(1) == y).float(),
        }


class Ask(roost.Hook):
    """Asks for a validation and a held save now and then, and draws a number of its own."""

    phase, every = roost.Phase.SCHEDULE, "11"

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def on_step(self, trainer: roost.Trainer) -> None:
        self.drawn.append(random.random())
        trainer.request_validate()
        trainer.request_save(hold=True)

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]
