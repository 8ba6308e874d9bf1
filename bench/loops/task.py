"""The task that every loop trains on, and how its steps are timed.

Model 32-64-10, batch 16, prebuilt batches, one thread. The clocks are noted where the loop asks for a batch:
whatever a trainer does before the first and after the last step is outside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

WARM, STEPS = 200, 1000
"""Optimizer steps that are not timed, and all of them."""


@dataclass(frozen=True)
class Work:
    """The numerics of a step: what a loop must do to be compared with another one.

    Args:
        optimizer: "sgd" or "adamw".
        max_grad_norm: The gradient is clipped to it; not at all when None.
        accumulation: Batches per step.
        bf16: Forward and loss under autocast.
    """

    optimizer: str = "sgd"
    max_grad_norm: float | None = None
    accumulation: int = 1
    bf16: bool = False


class Outcome(NamedTuple):
    """CPU and wall time per optimizer step in microseconds, and the weights it ended with."""

    cpu_us: float
    wall_us: float
    weights: torch.Tensor


class Net(nn.Module):
    """A tiny classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def new_net() -> Net:
    """The same weights each time."""
    torch.manual_seed(0)
    return Net()


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean over the batch."""
    return functional.cross_entropy(net(x), y)


def new_optimizer(work: Work, parameters: Any, *, fused: bool = False) -> torch.optim.Optimizer:
    """As `work` asks; ``fused`` takes the fused kernel of AdamW."""
    if work.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.01)
    return torch.optim.AdamW(parameters, lr=1e-3, fused=fused)


def new_batches(work: Work) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """All batches of the run."""
    drawn = torch.Generator().manual_seed(0)
    return [
        (torch.randn(16, 32, generator=drawn), torch.randint(10, (16,), generator=drawn))
        for _ in range(STEPS * work.accumulation)
    ]


class Clocked:
    """Hands out batches, and notes the clocks when the first timed one and the last step's are asked for."""

    def __init__(self, batches: Sequence[Any], *, accumulation: int = 1) -> None:
        self.batches = batches
        self._edges = WARM * accumulation, (STEPS - 1) * accumulation
        self._marks: list[tuple[float, float]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        first, last = self._edges
        for number, batch in enumerate(self.batches):
            if number in (first, last):
                self._marks.append((time.process_time(), time.perf_counter()))
            yield batch

    def outcome(self, net: nn.Module) -> Outcome:
        """What the loop took, and made of ``net``."""
        (cpu, wall), (cpu_end, wall_end) = self._marks
        weights = torch.cat([p.detach().flatten() for p in net.parameters()])
        steps = STEPS - 1 - WARM
        return Outcome((cpu_end - cpu) / steps * 1e6, (wall_end - wall) / steps * 1e6, weights)
