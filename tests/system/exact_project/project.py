"""A project with every kind of randomness that a resume must bring back: augmentation drawn from torch,
NumPy and Python, dropout, batch norm, and draws in the training step itself. ``net`` chooses the model."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sets
import torch
from nets import NETS, mlp
from sets import Points
from torch import Tensor
from torch.nn import functional

import roost


class Dataset(roost.Dataset):
    def build(self) -> roost.Data:
        return roost.Data(
            train=sets.KINDS[self.args["sets"]](
                Points(90, 1, jitter=0.1, reads=self.args["halt"]["read"], **self.args["bad"])
            ),
            valid=sets.KINDS[self.args["valid_sets"]](Points(40, 2, jitter=0.1)),
            test=Points(20, 3, jitter=0),
            collate={"train": sets.some_empty} if self.args["empty"] else None,
        )


def joined(batch: Any) -> Sequence[Tensor]:
    """Of one set, or of several by name: as one."""
    if not isinstance(batch, Mapping):
        return batch
    parts = [part for part in batch.values() if part is not None]
    return list(map(torch.cat, zip(*parts, strict=True)))


class Runner(roost.Runner):
    def build(self) -> None:
        self.net = NETS[self.args["net"]]()

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = joined(batch)
        time.sleep(self.args["pause"])
        logits = (
            self.net(x + 0.01 * torch.randn_like(x)) * (1 + 0.01 * random.random()) + 0.01 * np.random.randn()
        )
        self.log(spread=logits.std())
        return {
            "loss": functional.cross_entropy(logits, y) * self.args["factor"],
            "accuracy": (logits.argmax(1) == y).float().mean(),
        }

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        time.sleep(self.args["pause"])
        logits = self.net(x)
        losses = functional.cross_entropy(logits, y, reduction="none")
        return {"loss": losses, "likelihood": -losses, "accuracy": (logits.argmax(1) == y).float()}

    def visualize(self, batch: Any) -> Mapping[str, Any]:
        x, y = batch
        logits = self.net(x + 0.01 * torch.randn_like(x))  # draws, which the training must not notice
        return {
            "scores": roost.Media("matrix", logits),
            "values": roost.Media("histogram", logits, bins=4),
            "samples": f"{len(x)} samples, labels {y.tolist()}",
        }


class Gan(roost.Runner):
    """Two networks, two optimizers, one step."""

    def build(self) -> None:
        self.g, self.d = mlp(16), mlp(1)

    def made(self, batch: Any) -> Tensor:
        return self.g(torch.randn(len(batch[0]), 16)).view(-1, 1, 4, 4)

    def d_loss(self, batch: Any) -> Tensor:
        time.sleep(self.args["pause"])
        real, fake = self.d(batch[0]), self.d(self.made(batch).detach())
        return functional.softplus(-real).mean() + functional.softplus(fake).mean()

    def g_loss(self, batch: Any) -> Tensor:
        return functional.softplus(-self.d(self.made(batch))).mean()

    def update(self, stepper: Any, batches: Sequence[Any]) -> Mapping[str, Any]:
        return {
            **stepper.run(self.d_loss, batches, optimizer="d"),
            **stepper.run(self.g_loss, batches, optimizer="g"),
        }

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        time.sleep(self.args["pause"])
        return {"loss": functional.softplus(-self.d(self.made(batch))).squeeze(1)}


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
