"""Evaluations that the lab carries out, by the real command lines and a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.package.package import PackageFolder
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder
from tests.cli.programs import roost
from tests.evaluation.digits import DATASET, RUNNER, digits_package
from tests.lab.labs import Lab, two_card_lab
from tests.waiting import wait_for


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with two_card_lab(tmp_path / "lab") as made:
        yield made


def _task(lab: Lab) -> dict[str, Any]:
    said = roost("tasks", "--json", cwd=lab.folder)
    (task,) = json.loads(said.stdout)
    return task


def test_it_shows_its_progress_and_comes_to_its_end(lab: Lab, tmp_path: Path) -> None:
    package = digits_package(tmp_path / "digits", batch_seconds=0.05)
    command = ["submit", "evaluate", package.path, "--name", "night", "--checkpoints", "best", "-CPU"]
    said = roost(*command, cwd=lab.folder)
    assert said.returncode == 0, said.stderr
    (id,) = [task.id for task in lab.tasks()]
    seen = wait_for(lambda: one if (one := _task(lab))["left"] else None)
    assert seen["total_steps"] == 2, "the cells of the grid"
    assert lab.wait_for(id).state == "succeeded"
    found = EvaluationFolder(package.path / "evaluations" / "night")
    assert found.is_finished and len(found.cells()) == 2
    assert _task(lab)["kind"] == "evaluate"


def test_after_a_queued_training(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "Dataset.py").write_text(DATASET)
    (tmp_path / "Runner.py").write_text(RUNNER)
    settings = {
        "runner": "Runner.py:Runner", "dataset": "Dataset.py:Dataset", "max_steps": 2, "threads": 1,
        "batch_seconds": 0.0, "data": {"batch_size": 200, "num_workers": 0}, "test_at_end": "none",
        "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    command = ["submit", "-c", tmp_path / "config.json", "--name", "a", "--evaluate", "-CPU"]
    said = roost(*command, cwd=lab.folder)
    assert said.returncode == 0, said.stderr
    (id,) = [task.id for task in lab.tasks()]
    task = lab.wait_for(id)
    assert task.state == "succeeded"
    assert EvaluationFolder(Path(task.package) / "evaluations" / "1").is_finished
    assert PackageFolder.open(task.package).state == "succeeded"
    refused = roost("submit", "continue", task.package, "--evaluate", cwd=lab.folder)
    assert refused.returncode == 2 and "roost submit evaluate" in refused.stderr
