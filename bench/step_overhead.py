"""What the Trainer costs per step, beside a raw PyTorch loop with the same numerics.

    python bench/step_overhead.py [--rounds 9]

Model 32-64-10, batch 16, prebuilt batches, one thread. The Trainer has records (every 100 steps), the
progress board of the live bar, checkpoints (once an epoch of 1,000 steps), best, early stopping, validation
and the console configured: everything `roost run` sets up. Rounds alternate raw and Trainer; quoted is the
median over rounds of CPU time per step, and the ratio of medians. The first 200 steps are not timed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import roost
from roost.package.progress import Board
from roost.package.retention import Best as Rule
from roost.train import hooks
from roost.train.checkpoints import Checkpoints
from roost.train.loader import Batch

WARM, STEPS = 200, 1000
Clock = Callable[[], float]


class Clocked:
    """Hands out prebuilt batches and notes the clocks at batch WARM and at the last one."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.marks = batches, []

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.batches):
            if number in (WARM, len(self.batches) - 1):
                self.marks.append((time.process_time(), time.perf_counter()))
            yield batch

    def per_step_us(self) -> tuple[float, float]:
        """(CPU, wall) microseconds per step."""
        (cpu_a, wall_a), (cpu_b, wall_b) = self.marks
        steps = len(self.batches) - 1 - WARM
        return (cpu_b - cpu_a) / steps * 1e6, (wall_b - wall_a) / steps * 1e6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Runner(roost.Runner):
    def build(self) -> None:
        self.net = Net()

    def loss(self, batch: Any) -> torch.Tensor:
        return functional.cross_entropy(self.net(batch[0]), batch[1])


class PrebuiltLoader(roost.Loader):
    def __init__(self, clocked: Clocked) -> None:
        x, y = (torch.cat(column) for column in zip(*clocked.batches, strict=True))
        super().__init__(TensorDataset(x, y), plan=roost.BatchPlan(len(x), 16))
        self._clocked = clocked

    def epochs(self, epoch: int = 0, batch: int = 0) -> Iterator[Batch]:
        last = len(self._clocked.batches) - 1
        for number, value in enumerate(self._clocked):
            yield Batch(value, 16, number == last)


def make_optimizer(kind: str, parameters: Any, *, fused: bool) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.01)
    return torch.optim.AdamW(parameters, lr=1e-3, fused=fused)


def raw(batches: list[Any], kind: str) -> tuple[float, float]:
    """The loop people write."""
    torch.manual_seed(0)
    net = Net()
    optimizer = make_optimizer(kind, net.parameters(), fused=False)
    clocked = Clocked(batches)
    for x, y in clocked:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    return clocked.per_step_us()


def roosted(batches: list[Any], kind: str, *, fused: bool = False) -> tuple[float, float]:
    """The Trainer with everything configured."""
    torch.manual_seed(0)
    runner = Runner()
    runner.build()
    clocked = Clocked(batches)
    stepper = roost.Stepper(make_optimizer(kind, runner.parameters(), fused=fused))
    x, y = batches[0]
    valid = roost.Loader(TensorDataset(x, y), plan=roost.BatchPlan(len(x), 16, shuffle=False))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = roost.Trainer(
            runner,
            {"train": PrebuiltLoader(clocked), "valid": valid},
            stepper,
            hooks=[
                hooks.Records(Path(folder) / "records", 100),
                hooks.Save("1ep"),
                hooks.Console(),
                hooks.Visualize(Path(folder) / "media"),
                hooks.Validate("1ep"),
                hooks.Best([Rule(monitor="valid/loss")]),
                hooks.EarlyStop("valid/loss"),
            ],
            checkpoints=Checkpoints(Path(folder) / "checkpoints"),
            until="1ep",
            board=Board(Path(folder) / "progress"),
        )
        trainer.fit()
    return clocked.per_step_us()


def measure(rounds: int) -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(16, 32, generator=generator), torch.randint(10, (16,), generator=generator))
        for _ in range(STEPS)
    ]
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; µs CPU per step: median (min … max)\n")
    print("| case | raw loop | Trainer, all on | ratio CPU | ratio wall |\n|---|---|---|---|---|")
    for name, kind, fused in (
        ("SGD", "sgd", False),
        ("AdamW, same numerics", "adam", False),
        ("AdamW, fused: auto", "adam", True),
    ):
        pairs = [(raw(batches, kind), roosted(batches, kind, fused=fused)) for _ in range(rounds + 1)][1:]
        a, b = [pair[0][0] for pair in pairs], [pair[1][0] for pair in pairs]
        wall = statistics.median(p[1][1] for p in pairs) / statistics.median(p[0][1] for p in pairs)
        ratio = statistics.median(b) / statistics.median(a)
        print(f"| {name} | {_row(a)} | {_row(b)} | {ratio:.3f} | {wall:.3f} |", flush=True)


def _row(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    measure(parser.parse_args().rounds)
