"""Packages whose Runner or Dataset the config describes, or classes beside them that do the same by hand."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.project import native_project, trainer_assembly
from roost.project.package_context import package_code

CODE = """
import torch, roost
from torch import nn

def points(number, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 4, generator=generator)
    return x, (x[:, 0] > 0).long() + (x.sum(1) > 0).long()

def loud(factor):
    x, y = points(30, 3)
    return x * factor, y

def pair_of(samples):
    xs, ys = zip(*samples)
    return {"x": torch.stack(xs), "more": [torch.stack(ys)]}

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body, self.drop = nn.Linear(4, width), nn.Dropout(0.3)
        self.head, self.tail = nn.Linear(width, 3), nn.Linear(width, 3)
    def forward(self, x):
        features = self.drop(self.body(x).tanh())
        return {"logits": self.head(features), "features": features, "second": [self.tail(features)]}

def ring(features, radius=1.0):
    return (features.square().sum(1) - radius).square().mean()

def hits(output, y):
    return (output["logits"].argmax(1) == y).float()

def sizes(output):
    size = output["features"].abs()
    return {"largest": size.amax(1), "mean": size.mean()}

class Centers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(3, width))
    def forward(self, features, y):
        return (features - self.centers[y]).square().mean()

class Rests(roost.Hook):
    def on_epoch(self, trainer):
        trainer.request_validate()

class Keeps(roost.Hook):
    def __init__(self, step, name="kept"):
        self.step = step
    def on_step(self, trainer):
        if trainer.progress.step == self.step:
            trainer.request_save(hold=True)

def shown(runner, batch):
    return {"text": f"{len(batch[0])} of {type(runner).__name__}"}
"""

SETS = {
    "train": {"class": "roost.Arrays", "arrays": {"class": "Own.py:points", "number": 26, "seed": 1}},
    "valid": {"class": "roost.Arrays", "arrays": {"class": "Own.py:points", "number": 11, "seed": 2}},
}
LABEL = {"class": "torch.nn.CrossEntropyLoss", "inputs": ["output.logits", "batch.1"]}
MODEL = {"class": "Own.py:Net", "width": "${width}"}
ACCURACY = {"class": "Own.py:hits"}

NATIVE_DATASET = """
import roost
from Own import points
class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=roost.Arrays(points(26, 1)), valid=roost.Arrays(points(11, 2)))
"""
NATIVE = """
import torch, roost
from torch import nn
from Own import *
class Runner(roost.Runner):
    def build(self):
        self.model, self.criterion = Net(self.args["width"]), nn.CrossEntropyLoss()
"""


def project(folder: Path, **settings: Any) -> PackageFolder:
    """A package below ``folder``. ``runner`` and ``dataset`` are sections; as ``runner_code`` and
    ``dataset_code`` they are classes of the project's own."""
    code = {"runner": settings.pop("runner_code", None), "dataset": settings.pop("dataset_code", None)}
    values: dict[str, Any] = {
        "checkpoint": {"every": "3", "fast": 9},
        "validate_every": "4",
        "log_every": "2",
        "width": 5,
        "max_steps": 12,
        "data": {"batch_size": 8},
        "optimizers": {"main": {"class": "torch.optim.AdamW", "lr": 0.05}},
        "dataset": SETS,
        **settings,
        **{name: f"By{name}.py:{name.title()}" for name, text in code.items() if text is not None},
    }
    provenance = values.pop("provenance", None)
    made = PackageFolder.create(
        folder / "runs", name="run", values=values, provenance=provenance, request={"project": str(folder)}
    )
    (made.path / "Own.py").write_text(CODE)
    for name, text in code.items():
        if text is not None:
            (made.path / f"By{name}.py").write_text(text)
    return made


def run(folder: Path, *, steps: int = 12, cut: int | None = None, **settings: Any) -> PackageFolder:
    """Trains in this process; with ``cut`` it ends after so many steps, and another session goes on."""
    made = project(folder, max_steps=steps, **settings)
    for limit in [cut, steps] if cut is not None else [steps]:
        number = made.new_session({"project": str(folder), "overrides": [f"max_steps={limit}"]})
        with package_code(made), contextlib.redirect_stdout(io.StringIO()):
            experiment = native_project.load(made, project=str(folder), device="cpu")
            assert trainer_assembly.assemble(experiment, made, session=number).fit() == "finished"
    return made


def state_of(made: PackageFolder) -> dict[str, Any]:
    store = made.store()
    newest = checkpoint.ids(made.checkpoints)[-1]
    _, states = checkpoint.read(store.path(newest))
    return {name: states[name] for name in ("model", "optimizers")}


def flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{name}.{key}").items()}
    if isinstance(value, list):
        return flat(dict(enumerate(value)), name)
    return {name: value}


def rows(made: PackageFolder) -> list[dict[str, float]]:
    """The rows of its run, without times."""
    found = []
    for file in sorted((made.path / "records").glob("*.jsonl")):
        found += [json.loads(line) for line in file.read_text().splitlines()[1:]]
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith("perf/")} for row in found]


def assert_same(one: PackageFolder, other: PackageFolder) -> None:
    assert rows(one) == rows(other) and len(rows(one)) >= 3
    a, b = flat(state_of(one)), flat(state_of(other))
    assert a.keys() == b.keys() and len(a) > 5
    for name, value in a.items():
        same = torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name]
        assert same, name


def described(**settings: Any) -> dict[str, Any]:
    return {"model": MODEL, "losses": {"label": LABEL}, **settings}
