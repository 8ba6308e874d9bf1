"""Means over runs that belong together."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import UsageError
from roost.lab.queue import task_file
from roost.operations.listing.run_groups import MeanStd, group_runs
from tests.lab import queued
from tests.operations.packages import ROWS, VALUES, package


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(folder: Path, name: str, loss: float, *, rate: float = 0.1, seed: int = 0, **given: Any) -> Path:
    values = {**VALUES, "optimizers": {"main": {"class": "torch.optim.SGD", "lr": rate}}, "seed": seed}
    rows = [{**row, "valid/loss": loss + 1 / row["step"]} for row in ROWS]
    sweep = given.pop("sweep", None)
    made = package(folder, name, rows=rows, values=values, checkpoints=False, **given)
    if sweep is not None:
        task_file.write(queued.task(package=str(made.path), sweep=sweep), folder.parent / "lab")
    return made.path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two learning rates with three seeds each; the best run of all is of the worse rate."""
    for seed, (small, large) in enumerate(((0.5, 0.1), (0.6, 0.9), (0.4, 1.4))):
        run(tmp_path / "runs", f"small-{seed}", small, rate=0.01, seed=seed, sweep="s1")
        run(tmp_path / "runs", f"large-{seed}", large, rate=0.1, seed=seed, sweep="s1")
    return tmp_path / "runs"


def test_seeds_of_a_setting_sorted_by_their_mean(folder: Path) -> None:
    first, second = group_runs([folder], "sort:valid/loss", "seed")
    assert (first.values, second.values) == ({"lr": 0.01}, {"lr": 0.1})
    assert first.runs == first.succeeded == 3 and first.metric == "valid/loss" and first.best is None
    losses = [loss + 1 / 30 for loss in (0.5, 0.6, 0.4)]
    assert first.last == MeanStd(pytest.approx(statistics.fmean(losses)), pytest.approx(0.1), 3)
    assert Path(first.first_run).name == "small-2" and Path(second.first_run).name == "large-0"
    found = group_runs([folder], "sort:-valid/loss", "seed")
    assert [one.values["lr"] for one in found] == [0.1, 0.01]


def test_a_sweep_a_setting_and_a_field(folder: Path) -> None:
    run(folder, "alone", 0.0)
    assert [(one.values, one.runs) for one in group_runs([folder], "", "sweep")] == [
        ({"sweep": None}, 1),
        ({"sweep": "s1"}, 6),
    ]
    assert [one.values["lr"] for one in group_runs([folder], "sweep=s1", "lr")] == [0.1, 0.01]
    assert [one.runs for one in group_runs([folder], "sort:name", "state")] == [7]
    with pytest.raises(UsageError):
        group_runs([folder], "", "lrr")


def test_runs_that_did_not_succeed_are_counted_and_not_averaged(folder: Path) -> None:
    run(folder, "small-3", 9.0, rate=0.01, seed=3, state="failed")
    (found,) = group_runs([folder], "lr=0.01", "seed")
    assert (found.runs, found.succeeded) == (4, 3) and found.values == {}
    assert found.last is not None and found.last.count == 3 and found.last.mean < 1


def test_one_run_has_no_deviation_and_another_metric_another_group(tmp_path: Path) -> None:
    run(tmp_path / "runs", "a", 0.5)
    rows = [{"step": 1, "epoch": 1, "train/loss": 2.0, "valid/loss": 1.0}]
    values = {**VALUES, "checkpoint": {"best": [{"monitor": "train/loss", "mode": "min"}]}}
    package(tmp_path / "runs", "b", rows=rows, values=values, checkpoints=False)
    found = group_runs([tmp_path / "runs"], "", "state")
    assert [(one.metric, one.last) for one in found] == [
        ("valid/loss", MeanStd(pytest.approx(0.5 + 1 / 30), 0.0, 1)),
        ("train/loss", MeanStd(2.0, 0.0, 1)),
    ]


def test_a_run_without_a_value_leaves_no_mean(tmp_path: Path) -> None:
    run(tmp_path / "runs", "a", 0.5)
    package(tmp_path / "runs", "b", rows=[], checkpoints=False)
    assert [one.last for one in group_runs([tmp_path / "runs"], "", "max_epochs") if one.runs > 1] in (
        [],
        [None],
    )
    assert group_runs([tmp_path / "runs"], "name:nothing", "seed") == []
