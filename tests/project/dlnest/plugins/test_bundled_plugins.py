"""The plugins that roost has, in a project: log_init, auto_tensorboard_scalar and simple_cmd_visualize."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.project.dlnest.projects import load, package


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def test_logging_is_configured_before_the_projects_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
import logging
from DLNest.Common.LifeCycleBase import LifeCycleBase
class LifeCycle(LifeCycleBase):
    def BAll(self):
        logging.debug("details")
        logging.info("hello")
"""
    config = {"LogInit": {"level": "INFO", "format": "[%(levelname)s] %(message)s"}}
    load(package(tmp_path, {"LifeCycle.py": code}, plugins=["LogInit"], plugins_config=config)).begin()
    assert capsys.readouterr().out == "[INFO] hello\n"


def test_scalars_of_the_lists_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path, plugins=["AutoTensorboardScalar"])
    monkeypatch.chdir(made.path)
    project = load(made)
    assert project.build()
    log: dict[str, Any] = {
        "loss": [3.0, 2.0], "acc": [], "nested": {"f1": [np.float32(0.5)]}, "t": [torch.tensor(4.0)],
        "text": ["a"], "epochs": 3,
    }  # fmt: skip
    project.runner.visualize(log=log, iter=1, epoch=0)
    log["loss"].append(1.0)
    project.runner.visualize(log=log, iter=2, epoch=0)
    log["acc"].append(0.75)  # by the last validation, which no visualize() follows
    project.log = log
    project.calls.after("ATrain")

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(made.path))
    found.Reload()
    scalars = {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {
        "loss": [(1, 2.0), (2, 1.0)],
        "nested/f1": [(0, 0.5)] * 2,
        "t": [(0, 4.0)] * 2,
        "acc": [(0, 0.75)],
    }


def test_an_analysis_writes_no_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path, plugins=["AutoTensorboardScalar"])
    monkeypatch.chdir(made.path)
    assert load(made, analyzing=True).build()
    assert not list(made.path.glob("events*"))


def test_a_line_of_newest_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"stride": 2, "keys": ["loss", "acc", "none", "lr"], "format": {"acc": " {}={:.2f}"}}
    made = package(tmp_path, plugins=["SimpleCMDVisualize"], plugins_config={"SimpleCMDVisualize": config})
    project = load(made)
    project.build()
    capsys.readouterr()
    for step in range(3):
        project.runner.visualize(
            log={"loss": [2, step], "acc": [0.123], "none": [], "lr": 1}, iter=step, epoch=5
        )
    assert capsys.readouterr().out.splitlines() == [
        "epoch 5 step 0\t| loss: 0 acc=0.12\t| lr: 1",
        "epoch 5 step 2\t| loss: 2 acc=0.12\t| lr: 1",
    ]
