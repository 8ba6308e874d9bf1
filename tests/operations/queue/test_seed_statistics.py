"""Means over the seeds of a sweep."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from roost.lab.queue import task_file
from roost.operations.queue.seed_statistics import MeanStd, SeedStatistics, statistics_over_seeds
from roost.operations.reading.package_row import PackageSummary
from roost.operations.reading.package_summary import summarize
from tests.lab import queued
from tests.operations.packages import VALUES, package


def row(name: str, last: float | None, group: str | None = "g", **given: Any) -> PackageSummary:
    usual: dict[str, Any] = {
        "state": "succeeded",
        "metric": "valid/loss",
        "last": last,
        "best": None,
        "group": group,
    }
    return PackageSummary(name=name, **{**usual, **given})


def test_mean_and_deviation_of_those_that_succeeded() -> None:
    rows = [row("lr=1 seed=0", 1.0, best=0.5), row("a", 9.0, None), row("lr=2 seed=0", 7.0, "h")]
    rows += [row("lr=1 seed=1", 3.0, best=0.5), row("lr=1 seed=2", 8.0, state="running")]
    (found,) = statistics_over_seeds(rows)
    assert found == SeedStatistics(
        "lr=1 seed=*", 2, "valid/loss", MeanStd(2.0, statistics.stdev([1.0, 3.0])), MeanStd(0.5, 0.0)
    )


def test_what_runs_of_a_sweep_are_called_together() -> None:
    for first, second, name in (
        ("try_lr-1e-3_seed-0", "try_lr-1e-3_seed-1", "try_lr-1e-3_seed-*"),
        ("seed--1", "seed-0", "seed-*"),
        ("myseed-0", "myseed-1", "myseed-0"),
    ):
        (found,) = statistics_over_seeds([row(first, 1.0), row(second, 2.0)])
        assert found.name == name


def test_a_value_that_one_of_them_has_not_is_none_of_the_group() -> None:
    (found,) = statistics_over_seeds([row("a", 1.0, best=1.0), row("b", 2.0)])
    assert found.best is None and found.last == MeanStd(1.5, statistics.stdev([1.0, 2.0]))


def test_a_group_is_what_differs_in_the_seed_alone(tmp_path: Path) -> None:
    def group(name: str, sweep: str | None, **values: object) -> str | None:
        made = package(tmp_path / "runs", name, checkpoints=False, values={**VALUES, **values})
        task_file.write(queued.task(package=str(made.path), sweep=sweep), tmp_path / "lab")
        return summarize(made.path).group

    first = group("a", "7sweep", seed=0)
    assert first is not None and first == group("b", "7sweep", seed=1)
    assert group("c", "7sweep", seed=0, max_epochs=4) not in (first, None)
    assert group("d", "8sweep", seed=0) not in (first, None)
    assert group("e", None, seed=0) is None
