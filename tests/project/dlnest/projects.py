"""Small projects in DLNest's contract, as packages that a worker could run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.package import PackageFolder
from roost.project.dlnest import project_loading
from roost.project.dlnest.project_loading import DlnestProject

LIFE_CYCLE = """
from DLNest.Common.LifeCycleBase import LifeCycleBase

class LifeCycle(LifeCycleBase):
    best = -1

    def BAll(self):
        self.best = -1

    def needValidation(self, epoch, logdict, args):
        return True

    def needContinueTrain(self, epoch, logdict, args):
        return epoch + 1 < args["epochs"]

    def getSaveDict(self):
        return {"best": self.best}

    def loadSaveDict(self, saveDict):
        self.best = saveDict["best"]
"""

DATASET = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from DLNest.Common.DatasetBase import DatasetBase

class Dataset(DatasetBase):
    def init(self, args):
        x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, (x.sum(1) > 0).long())
        loader = DataLoader(data, batch_size=args["dataset_config"]["batch_size"])
        return {"classes": 2}, loader, loader
"""

RUNNER = """
import torch
from torch import nn
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch
from Net import Net

class Runner(RunnerBaseTorch):
    def init(self, args, datasetInfo=None):
        self.model = Net(4, datasetInfo["classes"])
        self.loss = nn.CrossEntropyLoss()

    def initOptimizer(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)

    def initLog(self):
        return {"loss": [], "acc": []}

    def runOneStep(self, data, log, iter, epoch):
        self.model.zero_grad()
        x, y = data
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        log["loss"].append(self._reduceMean(loss).detach().item())
"""

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.layer(x)
"""

VALUES: dict[str, Any] = {
    "save_root": "./Saves",
    "root_file_path": "/stale/project",
    "runner_name": "Runner",
    "dataset_name": "Dataset",
    "life_cycle_name": "LifeCycle",
    "runner_file_path": "./Model/Runner.py",
    "dataset_file_path": "./Dataset/Dataset.py",
    "life_cycle_file_path": "./LifeCycle.py",
    "other_file_paths": ["./Model/Net.py"],
    "checkpoint_args": {
        "max_ckpt_in_slow_track": 0,
        "dilation_in_slow_track": 100,
        "max_ckpt_in_fast_track": 1,
        "max_ckpt_in_consistent_track": 1,
    },
    "epochs": 2,
    "dataset_config": {"batch_size": 5, "root": "${HOME}/data"},
}

FILES = {
    "LifeCycle.py": LIFE_CYCLE,
    "Dataset/Dataset.py": DATASET,
    "Model/Runner.py": RUNNER,
    "Model/Net.py": NET,
}


def package(
    folder: Path, files: dict[str, str] | None = None, *, request: dict[str, Any] | None = None, **values: Any
) -> PackageFolder:
    """A package below ``folder`` with these files beside the usual ones; a value of None is left out."""
    merged = {name: value for name, value in {**VALUES, **values}.items() if value is not None}
    made = PackageFolder.create(
        folder / "Saves", name="run", values=merged, request={"kind": "dlnest", **(request or {})}
    )
    for name, text in {**FILES, **(files or {})}.items():
        file = made.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return made


def load(made: PackageFolder, **options: Any) -> DlnestProject:
    """The project of a package, whose life cycle exists."""
    return project_loading.load_project(
        made, parse_dlnest_settings(made.settings), **{"device": "cpu", **options}
    )
