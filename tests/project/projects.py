"""Small projects on disk, as packages that a worker could run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from roost.package.package import PackageFolder

DATASET = """
import torch
from torch.utils.data import TensorDataset
import roost

class Dataset(roost.Dataset):
    def build(self):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, (x.sum(1) > 0).float())
        return roost.Data(train=data, valid=data, info={"classes": 2})
"""

RUNNER = """
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        width = self.args["width"]
        self.net = nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 1))

    def loss(self, batch):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
"""

HOOKS = """
import roost

class Rules(roost.Hook):
    phase, every = roost.Phase.SCHEDULE, "3"

    def on_step(self, trainer):
        trainer.request_save(hold=True)
"""

VALUES: dict[str, Any] = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset.py:Dataset",
    "max_steps": 6,
    "width": 3,
    "data": {"batch_size": 10},
    "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}},
}


def project(
    folder: Path,
    *,
    dataset: str | dict[str, Any] = DATASET,
    runner: str | dict[str, Any] = RUNNER,
    hooks_code: str = HOOKS,
    provenance: dict[str, str] | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
    **settings: Any,
) -> PackageFolder:
    """A package below ``folder`` with this code and further files; a setting of None is left out. A mapping
    in place of code is the section of a config."""
    sections = {
        name: code for name, code in (("runner", runner), ("dataset", dataset)) if not isinstance(code, str)
    }
    values = {name: value for name, value in {**VALUES, **sections, **settings}.items() if value is not None}
    made = PackageFolder.create(
        folder / "runs", name="run", values=values, provenance=provenance, request={"project": str(folder)}
    )
    (made.path / "Model").mkdir()
    if isinstance(runner, str):
        (made.path / "Model" / "Runner.py").write_text(runner)
    if isinstance(dataset, str):
        (made.path / "Dataset.py").write_text(dataset)
    for name, text in files.items():
        (made.path / name).write_text(text)
    (made.path / "Hooks.py").write_text(hooks_code)
    return made
