"""roost's Trainer for a `Work`, with everything on or bare."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import roost
from roost.package.checkpoints.retention import BestRule
from roost.package.live_progress import ProgressFile
from roost.train import hooks
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Batch

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer


class Runner(roost.Runner):
    """The model as a Runner."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.net = new_net(work)

    def loss(self, batch: Any) -> torch.Tensor:
        return loss_of(self.net, *batch)


class PrebuiltLoader(roost.Loader):
    """A loader whose batches are prebuilt."""

    def __init__(self, work: Work, clocked: Clocked) -> None:
        x, y = (torch.cat(column) for column in zip(*clocked.batches, strict=True))
        super().__init__(TensorDataset(x, y), plan=roost.BatchPlan(len(x), work.batch_size))
        self._clocked, self._batch_size = clocked, work.batch_size

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        last = len(self._clocked) - 1
        for number, value in enumerate(self._clocked):
            yield Batch(value, self._batch_size, number == last)


def all_on(work: Work, batches: list[Any]) -> Outcome:
    """Trains with all of `roost run`: rows every 100 steps, progress file, saves, best, early stop,
    console."""
    return train(work, Clocked(work, batches))


def all_on_fused(work: Work, batches: list[Any]) -> Outcome:
    """Trains likewise, with ``fused: auto``, the default of the `optimizers` section."""
    return train(work, Clocked(work, batches), fused=True)


def bare(work: Work, batches: list[Any]) -> Outcome:
    """Trains without hooks, progress file and checkpoints."""
    return train(work, Clocked(work, batches), everything=False)


def train(work: Work, clocked: Clocked, *, everything: bool = True, fused: bool = False) -> Outcome:
    """Trains one epoch."""
    with trainer_of(work, clocked, everything=everything, fused=fused) as trainer:
        trainer.fit()
    return clocked.outcome(trainer.runner)


@contextlib.contextmanager
def trainer_of(
    work: Work, clocked: Clocked, *, everything: bool = True, fused: bool = False
) -> Iterator[roost.Trainer]:
    """Gives a trainer of one epoch; its output is dropped.

    Args:
        work: The numerics of a step.
        clocked: The batches.
        everything: Whether it has hooks, progress file and checkpoints.
        fused: Whether AdamW uses its fused kernel.
    """
    runner = Runner(work)
    optimizer = new_optimizer(work, runner.parameters(), fused=fused)
    stepper = roost.Stepper(
        roost.Optim(optimizer, max_grad_norm=work.max_grad_norm),
        accumulation=work.accumulation,
        precision="bf16" if work.bf16 else 32,
        mode=work.mode,
    )
    plan = roost.BatchPlan(work.batch_size, work.batch_size, shuffle=False)
    valid = roost.Loader(TensorDataset(*clocked.batches[0]), plan=plan)
    loaders = {"train": PrebuiltLoader(work, clocked), "valid": valid}
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        options: dict[str, Any] = {}
        if everything:
            options = {
                "hooks": hooks_of_a_run(folder),
                "checkpoints": Checkpoints(folder / "checkpoints"),
                "board": ProgressFile(folder / "progress"),
            }
        yield roost.Trainer(runner, loaders, stepper, until="1ep", **options)


def hooks_of_a_run(folder: Path) -> list[roost.Hook]:
    """Returns the hooks that `roost run` sets up."""
    return [
        hooks.Records(folder / "records", 100),
        hooks.Save("1ep"),
        hooks.Console(),
        hooks.Visualize(folder / "media"),
        hooks.Validate("1ep"),
        hooks.Best([BestRule(monitor="valid/loss")]),
        hooks.EarlyStop("valid/loss"),
    ]
