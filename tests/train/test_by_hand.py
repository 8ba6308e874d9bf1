"""A Trainer against the loop that people write: the same bits, feature by feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from roost.train import seeding
from roost.train.guard import Guard
from roost.train.optim import Optim
from roost.train.plan import BatchPlan
from roost.train.stepper import Stepper
from tests.train.parts import MLP, Classifier, Gan, Still, bits, built, plain, weights

Batch = tuple[Tensor, Tensor]
Epochs = Sequence[Sequence[Batch]]
Optims = dict[str, Optim]
cross_entropy = functional.cross_entropy


class Normed(Classifier):
    """With batch norm, whose buffers change in forward."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class Steep(MLP):
    """Whose gradients overflow in fp16 until the scale is small enough."""

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return 40 * cross_entropy(self.net(x), y)


class Weighing(MLP):
    """Each batch counts by what its samples weigh."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        weight = x[:, 0].abs()
        losses = cross_entropy(self.net(x), y, reduction="none")
        return {"loss": (losses * weight).sum() / weight.sum(), "weight": weight.sum()}


class Halves(MLP):
    """With two optimizers, that both move on one loss."""

    def build(self) -> None:
        super().build()
        self.first, self.last = self.net[0], self.net[3]


def adamw(module: nn.Module, **arguments: Any) -> Optims:
    return {"main": Optim(torch.optim.AdamW(module.parameters(), lr=0.02, **arguments))}


def momentum(module: nn.Module, **arguments: Any) -> Optims:
    return {"main": Optim(torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, **arguments))}


def clipped(kind: float) -> Callable[[nn.Module], Optims]:
    def made(module: nn.Module) -> Optims:
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.02)
        return {"main": Optim(optimizer, max_grad_norm=0.3, grad_norm_type=kind)}

    return made


def halves(every: int = 1) -> Callable[[Any], Optims]:
    def made(module: Any) -> Optims:
        first = torch.optim.SGD(module.first.parameters(), lr=0.1, momentum=0.9)
        last = torch.optim.Adam(module.last.parameters(), lr=0.02)
        return {"first": Optim(first), "last": Optim(last, every_n_steps=every)}

    return made


def gan(every: int = 1) -> Callable[[Any], Optims]:
    def made(module: Any) -> Optims:
        d, g = (torch.optim.Adam(part.parameters(), lr=0.02) for part in (module.d, module.g))
        return {"d": Optim(d, max_grad_norm=0.5), "g": Optim(g, every_n_steps=every)}

    return made


def of(optims: Optims) -> tuple[torch.optim.Optimizer, ...]:
    return tuple(optim.optimizer for optim in optims.values())


# --- the loops --------------------------------------------------------------------------------------------


def simple(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for x, y in epoch:
            optimizer.zero_grad()
            cross_entropy(net.net(x), y).backward()
            optimizer.step()


def in_bf16(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for x, y in epoch:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = cross_entropy(net.net(x), y)
            loss.backward()
            optimizer.step()


def in_fp16(max_grad_norm: float | None, k: int = 1) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        scaler = torch.amp.GradScaler("cpu")
        for epoch in epochs:
            for window in windows(epoch, k):
                optimizer.zero_grad()
                for x, y in window:
                    with torch.autocast("cpu", torch.float16):
                        loss = 40 * cross_entropy(net.net(x), y) / len(window)
                    scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                if max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm)
                scaler.step(optimizer)
                scaler.update()
        assert scaler.get_scale() < 2.0**16, "nothing overflowed"
        optims["main"].scaler = scaler

    return loop


def windows(epoch: Sequence[Batch], k: int) -> Iterator[Sequence[Batch]]:
    for first in range(0, len(epoch), k):
        yield epoch[first : first + k]


def accumulating(k: int) -> Callable[[Any, Optims, Epochs], None]:
    """As it is usually written, for batches of one size."""

    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        for epoch in epochs:
            for window in windows(epoch, k):
                for x, y in window:
                    (cross_entropy(net.net(x), y) / len(window)).backward()
                optimizer.step()
                optimizer.zero_grad()

    return loop


def accumulating_by_samples(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for window in windows(epoch, 4):
            total = sum(len(y) for _, y in window)
            for x, y in window:
                (cross_entropy(net.net(x), y) * (len(y) / total)).backward()
            optimizer.step()
            optimizer.zero_grad()


def accumulating_by_weight(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for window in windows(epoch, 3):
            total: Any = 0.0
            for batch in window:
                found = net.loss(batch)
                (found["loss"] * found["weight"]).backward()
                total = total + found["weight"]
            if len(window) > 1:
                for parameter in net.parameters():
                    parameter.grad /= total
            else:  # a mean is a mean, whatever it weighs
                optimizer.zero_grad()
                seeded = found["loss"]
                del seeded
            optimizer.step()
            optimizer.zero_grad()
