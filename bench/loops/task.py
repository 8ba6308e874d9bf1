"""The model, data and numerics that every loop trains with, and the clock of its steps.

Model 32-64-10, batch 16, prebuilt batches, one thread. The clocks are read where the loop requests a batch:
the work of a trainer before the first and after the last step is not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

WARM, STEPS = 200, 1000
"""Optimizer steps that are not timed; optimizer steps in total."""


class Net(nn.Module):
    """A tiny classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@dataclass(frozen=True)
class Work:
    """The numerics of a step, which are the same in all loops that are compared.

    Args:
        optimizer: "sgd" or "adamw".
        max_grad_norm: Norm to which the gradient is clipped; None: no clipping.
        accumulation: Batches per step.
        bf16: Whether forward and loss run under autocast.
        mode: Step mode: "eager" or "compile".
        net: Creates the model, from 32 numbers to 10 classes.
        batch_size: Samples per batch.
        device: Device of the steps; the batches are on the host.
    """

    optimizer: str = "sgd"
    max_grad_norm: float | None = None
    accumulation: int = 1
    bf16: bool = False
    mode: Literal["eager", "compile"] = "eager"
    net: Callable[[], nn.Module] = Net
    batch_size: int = 16
    device: str = "cpu"


class Outcome(NamedTuple):
    """Seconds of the first step, CPU and wall microseconds of a later one, and the weights at the end."""

    first_s: float
    cpu_us: float
    wall_us: float
    weights: torch.Tensor


def new_net(work: Work) -> nn.Module:
    """Returns a model on the device; its weights are the same each time."""
    torch.manual_seed(0)
    return work.net().to(work.device)


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns the mean loss of a batch."""
    return functional.cross_entropy(net(x), y)


def new_optimizer(work: Work, parameters: Any, *, fused: bool = False) -> torch.optim.Optimizer:
    """Returns the optimizer of ``work``; ``fused``: AdamW with its fused kernel."""
    if work.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.01)
    return torch.optim.AdamW(parameters, lr=1e-3, fused=fused)


def new_batches(work: Work) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns all batches of the run, on the CPU."""
    drawn, size = torch.Generator().manual_seed(0), work.batch_size
    return [
        (torch.randn(size, 32, generator=drawn), torch.randint(10, (size,), generator=drawn))
        for _ in range(STEPS * work.accumulation)
    ]


class Clocked:
    """Gives batches, and reads the clocks before the first two, the first timed and the last step."""

    def __init__(self, work: Work, batches: Sequence[Any]) -> None:
        self.batches, self._device = batches, torch.device(work.device)
        self._edges = [step * work.accumulation for step in (0, 1, WARM, STEPS - 1)]
        self._marks: list[tuple[float, float]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        edges = self._edges
        for number, batch in enumerate(self.batches):
            if number in edges:
                self._mark()
            yield batch

    def _mark(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._marks.append((time.process_time(), time.perf_counter()))

    def outcome(self, net: nn.Module) -> Outcome:
        """Returns the times of the loop, and the weights of ``net``."""
        (_, begun), (_, stepped), (cpu, wall), (cpu_end, wall_end) = self._marks
        weights = torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()
        steps = STEPS - 1 - WARM
        return Outcome(
            stepped - begun, (cpu_end - cpu) / steps * 1e6, (wall_end - wall) / steps * 1e6, weights
        )
