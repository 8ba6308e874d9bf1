"""Settings and metrics of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.plots.setting_points import read_points
from tests.messages import Messages
from tests.operations.packages import VALUES, package


def made(folder: Path, name: str, values: list[float], **settings: Any) -> Path:
    rows = [{"step": n, "epoch": 0, "valid/loss": one, "lr": 0.1} for n, one in enumerate(values, 1)]
    return package(folder, name, rows=rows, checkpoints=False, values={**VALUES, **settings}).path


def test_each_run_with_its_setting_and_metric(tmp_path: Path) -> None:
    paths = [made(tmp_path / "runs", f"r{n}", [3.0, n, n + 0.5], width=n) for n in (2, 1)]
    for value, expected in (("last", [2.5, 1.5]), ("min", [2.0, 1.0]), ("max", [3.0, 3.0])):
        found = read_points(paths, ["width"], value=value)
        assert found.runs == ["r2", "r1"] and found.keys[0].positions == [2, 1]
        assert [(one.name, one.positions) for one in found.metrics] == [("valid/loss", expected)]
    found = read_points(paths, ["width", "valid/loss"])
    assert [one.name for one in found.keys] == ["width"], "the metric has its axis in any case"


@pytest.mark.parametrize(
    ("values", "positions", "categories", "logarithmic"),
    [
        ([1, 10, 100], [1, 10, 100], [], True),
        ([1, 10, 99], [1, 10, 99], [], False),
        ([0, 10, 1000], [0, 10, 1000], [], False),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"], False),
        ([10, "auto", 2], [1, 2, 0], ["2", "10", "auto"], False),
        ([True, None, False], [2, 0, 1], ["(none)", "False", "True"], False),
        ([[1, 2], [1], [1]], [1, 0, 0], ["1", "[1, 2]"], False),
    ],
)
def test_axes(
    tmp_path: Path, values: list[Any], positions: list[float], categories: list[str], logarithmic: bool
) -> None:
    paths = [made(tmp_path / "runs", f"r{n}", [1.0], key=one) for n, one in enumerate(values)]
    (axis,) = read_points(paths, ["key"]).keys
    assert (axis.positions, axis.categories, axis.logarithmic) == (positions, categories, logarithmic)


def test_runs_without_a_value_are_left_out_by_name(tmp_path: Path) -> None:
    paths = [
        made(tmp_path / "runs", f"r{n}", values)
        for n, values in enumerate(([], [math.nan], [math.inf], [1.0]))
    ]
    found = read_points(paths, ["max_epochs"], ["valid/loss"])
    assert found.runs == ["r3"] and found.left_out == ["r0", "r1", "r2"]
    assert len(found.notes) == 1 and found.notes[0].startswith("1 run")


@pytest.mark.parametrize("value", ["last", "min"])
def test_several_metrics_by_a_pattern(tmp_path: Path, value: str) -> None:
    path = made(tmp_path / "runs", "a", [2.0])
    found = read_points([path], ["max_epochs"], ["loss", "lr"], value=value)
    assert [(one.name, one.positions) for one in found.metrics] == [("valid/loss", [2.0]), ("lr", [0.1])]


def test_mistakes(tmp_path: Path, messages: Messages) -> None:
    path = made(tmp_path / "runs", "a", [2.0])
    empty = made(tmp_path / "runs", "b", [])
    for error, arguments in (
        (UsageError, ([path], ["max_epoch"])),
        (NotFound, ([path], ["max_epochs"], ["valid/los"])),
        (NotFound, ([empty], ["max_epochs"])),
        (NotFound, ([empty], ["max_epochs"], ["valid/loss"])),
    ):
        with pytest.raises(error) as refused:
            read_points(*arguments)  # type: ignore[arg-type]
        messages.check(refused.value)
    with pytest.raises(UsageError) as unknown:
        read_points([path], ["max_epochs"], value="best")
    assert unknown.value.setting == "--value"
    messages.check(unknown.value)
