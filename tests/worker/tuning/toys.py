"""Projects with a known bottleneck, and a tuning of them in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.package.package import PackageFolder
from roost.package.results import tuning_report
from roost.package.results.tuning_report import TargetFinding, TuningReport
from roost.worker.check.stages import StageReporter
from roost.worker.tuning import candidate_rounds
from roost.worker.tuning.tuning_run import TuningRun
from tests.project.projects import project

DATASET = """
import time
import torch
import roost

class Points(torch.utils.data.Dataset):
    def __init__(self, samples, seconds):
        self.x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
        self.seconds = seconds

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.x[index], (self.x[index].sum() > 0).float()

class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=Points(self.args.get("samples", 40), self.args.get("sample_seconds", 0)))
"""
"""A set whose samples wait, as for a disk."""

RUNNER = """
import time
import torch
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(4, 1)

    def loss(self, batch):
        x, y = batch
        time.sleep(self.args.get("step_seconds", 0))
        if len(x) > self.args.get("most_samples", 10**9):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
"""
"""A step that takes a time that does not depend on the CPU, as on a device, and has a limit of memory."""


def tuned(
    package: PackageFolder,
    monkeypatch: pytest.MonkeyPatch,
    *targets: str,
    seconds: float = 120.0,
    apply: tuple[str, ...] = (),
) -> TuningReport:
    """Measures in this process: briefly, and for as long as it takes on a busy machine."""
    monkeypatch.setattr(candidate_rounds, "_MAX_BLOCK_SECONDS", 0.15)
    monkeypatch.setattr(candidate_rounds, "ROUNDS", 3)
    monkeypatch.chdir(package.path)
    package.new_session({"overrides": [], "device": "cpu", "project": "/nowhere"})
    request = {
        "device": "cpu", "project": "/nowhere", "targets": targets, "seconds": seconds, "apply": apply
    }  # fmt: skip
    reporter = StageReporter(package.path)
    reporter.begin("imports")
    TuningRun(package, request, reporter).run()
    return tuning_report.read(package.path)


def finding(report: TuningReport, target: str) -> TargetFinding:
    return next(one for one in report.findings if one.target == target)


def toy(folder: Path, *, dataset: Any = DATASET, runner: Any = RUNNER, **settings: Any) -> PackageFolder:
    return project(folder, dataset=dataset, runner=runner, **{"width": None, "threads": 1, **settings})
