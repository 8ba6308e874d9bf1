"""roost's Trainer on the task."""

from __future__ import annotations

import contextlib
import inspect
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import roost
from roost.package.progress import Board
from roost.package.retention import Best as Rule
from roost.train import hooks
from roost.train.checkpoints import Checkpoints
from roost.train.loader import Batch

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer

HAS_PRECISION = "precision" in inspect.signature(roost.Stepper).parameters


class Runner(roost.Runner):
    """The task, as a user of roost writes it."""

    def build(self) -> None:
        self.net = new_net()

    def loss(self, batch: Any) -> torch.Tensor:
        return loss_of(self.net, *batch)


class PrebuiltLoader(roost.Loader):
    """Gives batches that are ready."""

    def __init__(self, clocked: Clocked) -> None:
        x, y = (torch.cat(column) for column in zip(*clocked.batches, strict=True))
        super().__init__(TensorDataset(x, y), plan=roost.BatchPlan(len(x), 16))
        self._clocked = clocked

    def epochs(self, epoch: int = 0, batch: int = 0) -> Iterator[Batch]:
        last = len(self._clocked) - 1
        for number, value in enumerate(self._clocked):
            yield Batch(value, 16, number == last)


def all_on(work: Work, batches: list[Any]) -> Outcome:
    """Everything that `roost run` sets up: rows each 100 steps, board, saves, best, early stop, console."""
    return _train(work, batches, everything=True)


def all_on_fused(work: Work, batches: list[Any]) -> Outcome:
    """The same with ``fused: auto``, which is the default of the `optimizers` section."""
    return _train(work, batches, everything=True, fused=True)


def bare(work: Work, batches: list[Any]) -> Outcome:
    """No hook, no board, no checkpoints."""
    return _train(work, batches, everything=False)


def _train(work: Work, batches: list[Any], *, everything: bool, fused: bool = False) -> Outcome:
    runner = Runner()
    runner.build()
    clocked = Clocked(batches, accumulation=work.accumulation)
    optimizer = new_optimizer(work, runner.parameters(), fused=fused)
    stepper = roost.Stepper(
        roost.Optim(optimizer, max_grad_norm=work.max_grad_norm),
        accumulation=work.accumulation,
        **({"precision": "bf16"} if work.bf16 else {}),
    )
    valid = roost.Loader(TensorDataset(*batches[0]), plan=roost.BatchPlan(16, 16, shuffle=False))
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        more: dict[str, Any] = {}
        if everything:
            more = {
                "hooks": _hooks(folder),
                "checkpoints": Checkpoints(folder / "checkpoints"),
                "board": Board(folder / "progress"),
            }
        loaders = {"train": PrebuiltLoader(clocked), "valid": valid}
        roost.Trainer(runner, loaders, stepper, until="1ep", **more).fit()
    return clocked.outcome(runner)


def _hooks(folder: Path) -> list[roost.Hook]:
    return [
        hooks.Records(folder / "records", 100),
        hooks.Save("1ep"),
        hooks.Console(),
        hooks.Visualize(folder / "media"),
        hooks.Validate("1ep"),
        hooks.Best([Rule(monitor="valid/loss")]),
        hooks.EarlyStop("valid/loss"),
    ]
