"""Trains small models of many kinds, one after the other, whole or as one leg of two; each leg is a process.

    python -m tests.gpu.legs FOLDER whole|first|second RESULT [--mode eager] [--only TEXT]

RESULT gets a digest of the final state of each, its rows, and why it is not exact. The first leg ends at step
10: inside the window of a row (every 4 steps), and after a validation (every 5).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from roost.config.settings import parse_settings
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hooks import Records, Save, Validate
from roost.train.optim.optimizer import Optim
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from roost.worker import torch_settings
from tests.gpu.device import DEVICE, REHEARSES
from tests.project.projects import VALUES
from tests.train.parts import Classifier, Pictures, Points, StopAt, built, loader, rows_of, state_of

STEPS, CUT = 20, 10


class Dense(Classifier):
    """Linear layers with dropout."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 2))


class Convolutions(Classifier):
    """With batch norm, whose buffers change."""

    def build(self) -> None:
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 2)
        )


class Attention(nn.Module):
    """Over the six numbers of a point."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.out = nn.Linear(1, 32), nn.Linear(32, 96), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mix(self.embed(x.unsqueeze(2))).chunk(3, dim=2)
        weights = functional.dropout((query @ key.transpose(1, 2)).softmax(2), 0.1, self.training)
        found: Tensor = self.out((weights @ value).mean(1))
        return found


class Attending(Classifier):
    def build(self) -> None:
        self.net = Attention()


class Recurrent(nn.Module):
    """An LSTM of two layers, with dropout between them or without."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.cells = nn.LSTM(1, 32, num_layers=2, dropout=dropout, batch_first=True)
        self.out = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.cells(x.unsqueeze(2))[0][:, -1])
        return found


class Remembering(Classifier):
    def build(self) -> None:
        self.net = Recurrent(0.0)


class Forgetting(Classifier):
    """Whose dropout has a generator of cuDNN's own."""

    def build(self) -> None:
        self.net = Recurrent(0.3)


MODELS = {
    "dense": Dense,
    "convolutions": Convolutions,
    "attention": Attending,
    "lstm": Remembering,
    "lstm with dropout": Forgetting,
}
PRECISIONS = (32, "bf16", "fp16")
OPTIMIZERS: dict[str, Any] = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


class Cell(NamedTuple):
    """One kind of run."""

    model: str
    precision: Any
    optimizer: str

    @property
    def name(self) -> str:
        return ", ".join(map(str, self))


CELLS = [
    Cell(*one)
    for one in itertools.product(MODELS, PRECISIONS, OPTIMIZERS)
    if not (REHEARSES and one[0].startswith("lstm") and one[1] != 32)  # some CPUs have no such kernel
]


def trainer_of(cell: Cell, folder: Path, *hooks: Any, mode: Any = "eager") -> Trainer:
    runner = built(MODELS[cell.model]).to(DEVICE)
    optim = Optim(OPTIMIZERS[cell.optimizer](runner.parameters()), max_grad_norm=1.0)
    data = Pictures() if cell.model == "convolutions" else Points()
    pinned = {"pin_memory": DEVICE != "cpu"}
    sessions = len(list((folder / "records").glob("*.jsonl")))
    return Trainer(
        runner,
        {"train": loader(data, **pinned), "valid": loader(data, 8, shuffle=False, **pinned)},
        Stepper(optim, precision=cell.precision, mode=mode, guard=NonfiniteGuard(runner)),
        hooks=[Records(folder / "records", 4), Save(7), Validate(5), *hooks],
        checkpoints=Checkpoints(folder / "Checkpoints", RetentionPolicy(fast=1), session=sessions + 1),
        until=STEPS,
        seed=3,
    )


def run(cell: Cell, folder: Path, leg: str, mode: str) -> dict[str, Any]:
    hooks = [StopAt(CUT)] if leg == "first" else []
    folder.mkdir(parents=True, exist_ok=True)
    trainer = trainer_of(cell, folder, *hooks, mode=mode)
    trainer.fit()
    assert trainer.progress.step == (CUT if leg == "first" else STEPS)
    state = repr(sorted(state_of(trainer).items())).encode()
    return {
        "state": hashlib.sha256(state).hexdigest(),
        "rows": rows_of(folder),
        "inexact": trainer.inexact,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("leg", choices=["whole", "first", "second"])
    parser.add_argument("result", type=Path)
    parser.add_argument("--mode", default="eager")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    settings = parse_settings({**VALUES, "determinism": "strict", "threads": 1})
    torch_settings.apply(settings, device=DEVICE, first=None)
    found = {
        cell.name: run(cell, options.folder / cell.name.replace(", ", "-"), options.leg, options.mode)
        for cell in CELLS
        if options.only in cell.name
    }
    options.result.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
