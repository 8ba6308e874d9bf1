"""Tiny real models and data, a trainer with everything that roost's own hooks do, and the comparison of two
runs bit for bit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import roost
from roost.base import state_tree
from roost.package import records
from roost.package.checkpoints.retention import BestRule as Rule
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Best, EarlyStop, Records, Save, Schedule, Validate
from roost.train.optim.optimizer import Optim
from roost.train.step import seeding
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer

R = TypeVar("R", bound=roost.Runner)

NUM_SAMPLES = 26
BATCH_SIZE = 4
STEPS_PER_EPOCH = 7  # the last one with 2 samples


class Points(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Points (6,) with labels; each drawn sample is moved by torch, by NumPy and by Python's random."""

    def __init__(
        self, num_samples: int = NUM_SAMPLES, *, seed: int = 5, reads: list[int] | None = None
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(num_samples, 6, generator=generator)
        self.y = (self.x.sum(1) > 0).long()
        self.reads = reads

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.reads is not None:
            self.reads.append(index)
        factor = 1 + 0.1 * float(np.random.standard_normal())
        return (self.x[index] + 0.1 * torch.randn(6)) * factor + 0.1 * random.random(), self.y[index]


class Pictures(Points):
    """Pictures (1, 6, 6) with labels, flipped and moved by chance."""

    def __init__(self, num_samples: int = NUM_SAMPLES, *, seed: int = 5) -> None:
        super().__init__(num_samples, seed=seed)
        generator = torch.Generator().manual_seed(seed + 1)
        self.pictures = torch.randn(num_samples, 1, 8, 8, generator=generator)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        top, left = int(torch.randint(3, ())), int(np.random.randint(3))
        picture = self.pictures[index, :, top : top + 6, left : left + 6]
        return picture.flip(2) if random.random() < 0.5 else picture, self.y[index]


class Still(Points):
    """Points that are never moved."""

    draws_randomness = False

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Classifier(roost.Runner):
    """What the runners below share."""

    net: nn.Module

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        logits = self.net(x)
        return {
            "loss": functional.cross_entropy(logits, y),
            "accuracy": (logits.argmax(1) == y).float().mean(),
        }

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        logits = self.net(x)
        loss = functional.cross_entropy(logits, y, reduction="none")
        return {"loss": loss, "accuracy": (logits.argmax(1) == y).float()}


class MLP(Classifier):
    """With dropout, which draws from torch's generator in each step."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


class CNN(Classifier):
    """With batch norm, which has buffers."""

    def build(self) -> None:
        self.net = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2)
        )


class Gan(roost.Runner):
    """Two networks, two optimizers, one step."""

    def build(self) -> None:
        self.g, self.d = nn.Linear(3, 6), nn.Linear(6, 1)

    def d_loss(self, batch: Any) -> Tensor:
        x, _ = batch
        fake = self.g(torch.randn(len(x), 3)).detach()
        return functional.softplus(-self.d(x)).mean() + functional.softplus(self.d(fake)).mean()

    def g_loss(self, batch: Any) -> Tensor:
        x, _ = batch
        return functional.softplus(-self.d(self.g(torch.randn(len(x), 3)))).mean()

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        return {
            **stepper.run(self.d_loss, batches, optimizer="d"),
            **stepper.run(self.g_loss, batches, optimizer="g"),
        }


def built(kind: type[R], *, seed: int = 1, args: Mapping[str, Any] | None = None) -> R:
    """A runner with the same weights each time."""
    seeding.seed_all(seed)
    runner = kind(args)
    runner.build()
    return runner


def loader(dataset: Any, batch_size: int = BATCH_SIZE, *, shuffle: bool = True, **options: Any) -> Loader:
    """Seeded by 3, as the trainers here."""
    return Loader(
        dataset, plan=BatchPlan(len(dataset), batch_size, seed=3, shuffle=shuffle), seed=3, **options
    )


def plain(
    runner: roost.Runner, dataset: Any, hooks: Sequence[Hook] = (), *, until: str | int = 3, **options: Any
) -> Trainer:
    """A trainer with nothing but a training set, SGD and what is given."""
    stepper = options.pop("stepper", None) or Stepper(torch.optim.SGD(runner.parameters(), lr=0.1))
    loaders = {"train": loader(dataset), **options.pop("loaders", {})}
    return Trainer(runner, loaders, stepper, hooks=hooks, until=until, seed=3, **options)


@dataclass
class Recipe:
    """How to make a trainer with everything, fresh each time: what a restart does."""

    runner: type[roost.Runner] = MLP
    dataset: Callable[[], Any] = Points
    until: str | int = "2ep"
    workers: int = 0
    validate: Any = "3"
    save: Any = "4"
    log: Any = "2"
    unit: str = "step"
    accumulation: int = 1
    patience: int = 100
    hooks: Sequence[Callable[[], Hook]] = field(default_factory=tuple)
    recovery: Mapping[str, Any] = field(default_factory=dict)
    """What `Recovery` takes."""

    def make(self, folder: Path, *extra: Hook, workers: int | None = None) -> Trainer:
        """The trainer of the run in ``folder``, with more hooks; those come first in their phase."""
        runner = built(self.runner)
        optimizer = torch.optim.AdamW(runner.parameters(), lr=0.05)
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        sessions = [int(path.stem) for path in (folder / "records").glob("*.jsonl")]
        session = max(sessions, default=0) + 1
        optim = Optim(optimizer, scheduler, unit=self.unit, max_grad_norm=1.0)
        rules = (Rule(monitor="valid/loss", top_k=2), Rule(monitor="valid/accuracy", mode="max"))
        num_workers = self.workers if workers is None else workers
        loaders = {
            "train": loader(self.dataset(), num_workers=num_workers),
            "valid": loader(self.dataset(), 8, shuffle=False),
        }
        hooks = [
            *(hook() for hook in self.hooks),
            *extra,
            Records(folder / "records", self.log, session=session),
            Save(self.save),
            Schedule(),
            Validate(self.validate),
            Best(rules),
            EarlyStop("valid/loss", patience=self.patience),
        ]
        return Trainer(
            runner,
            loaders,
            Stepper(optim, accumulation=self.accumulation, guard=guard_of(runner, self.recovery)),
            hooks=hooks,
            checkpoints=Checkpoints(
                folder / "Checkpoints", RetentionPolicy(fast=2, best=rules), session=session
            ),
            until=self.until,
            seed=3,
            recovery=Recovery(
                black_box=BlackBoxRecorder(folder / "blackbox", session),
                log=folder / "skipped.jsonl",
                session=session,
                **self.recovery,
            ),
        )


def guard_of(runner: roost.Runner, recovery: Mapping[str, Any]) -> NonfiniteGuard | None:
    """The guard that what `Recovery` takes asks for."""
    looks = recovery.get("on_non_finite", "stop") != "stop"
    return (
        NonfiniteGuard(runner, checks_step=looks)
        if looks or recovery.get("on_step_error") == "skip"
        else None
    )


class StopAt(Hook):
    """Asks for a stop after a step."""

    def __init__(self, step: int, phase: Phase = Phase.REPORT) -> None:
        self.phase, self.step = phase, step

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self.step:
            trainer.request_stop("test")


class Crash(Exception):
    """The power cut of these tests."""


class CrashAt(StopAt):
    """Fails after a step; nothing is saved then."""

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self.step:
            raise Crash


class Steps(Hook):
    """Remembers when it was called, also over restarts."""

    def __init__(self, phase: Phase = Phase.EVAL, every: Any = None, name: str = "Steps") -> None:
        self.phase, self.every, self._name = phase, every, name
        self.steps: list[int] = []
        self.epochs: list[int] = []
        self.evals: list[int] = []

    @property
    def name(self) -> str:
        return self._name

    def on_step(self, trainer: Trainer) -> None:
        self.steps.append(trainer.progress.step)

    def on_epoch(self, trainer: Trainer) -> None:
        self.epochs.append(trainer.progress.step)

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        self.evals.append(trainer.progress.step)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "epochs": self.epochs, "evals": self.evals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.epochs, self.evals = state["steps"], state["epochs"], state["evals"]


def bits(value: Any) -> tuple[str, dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """A state as plain text and bytes: equal if and only if every bit is."""
    skeleton, leaves = state_tree.pack(value)
    text = json.dumps(skeleton, sort_keys=True)
    return text, {name: (leaf.dtype, leaf.shape, bytes(leaf.data)) for name, leaf in leaves.items()}


def state_of(trainer: Trainer) -> dict[str, Any]:
    """All that a checkpoint holds, without times."""
    states = {name: part.state_dict() for name, part in trainer.parts().items()}
    states["trainer"]["progress"] = {**states["trainer"]["progress"], "seconds": 0.0}
    return {name: bits(state) for name, state in states.items()}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The folded rows of a run, without times."""
    rows = records.fold(folder / "records").rows
    return [{name: value for name, value in row.items() if is_exact(name)} for row in rows]


def is_exact(name: str) -> bool:
    """Whether two runs that are equal have the same value of that name in each row."""
    return name != "time" and not name.startswith(records.PERF)


def best_of(folder: Path, rule: Rule) -> list[tuple[int, float]]:
    """(step, value) of the best checkpoints on disk."""
    from roost.package.checkpoints import checkpoint, retention

    found = retention.best_checkpoints(
        retention.lineage(checkpoint.read_manifests(folder / "Checkpoints")), rule
    )
    return [(info.step, info.metrics[rule.monitor]) for info in found]


def outcome(trainer: Trainer, folder: Path) -> dict[str, Any]:
    """Everything of a finished run that must be the same however often it was cut."""
    return {
        **state_of(trainer),
        "rows": rows_of(folder),
        "best": best_of(folder, Rule(monitor="valid/loss", top_k=2)),
        "best accuracy": best_of(folder, Rule(monitor="valid/accuracy", mode="max")),
    }


def assert_equal(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Part by part, so that a failure names the part."""
    assert ours.keys() == theirs.keys()
    for name, part in ours.items():
        other = theirs[name]
        if isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], dict):
            assert part[0] == other[0], name
            assert part[1].keys() == other[1].keys(), name
            different = [leaf for leaf in part[1] if part[1][leaf] != other[1][leaf]]
            assert not different, f"{name}: {different}"
        else:
            assert part == other, name


def weights(module: nn.Module) -> Any:
    """Parameters and buffers, as bits."""
    return bits(dict(module.state_dict()))
