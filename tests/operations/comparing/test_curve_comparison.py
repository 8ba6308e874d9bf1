"""Where the curves of two runs part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from roost.operations.comparing.comparison import CurveParting
from roost.operations.comparing.curve_comparison import compare_curves
from tests.operations.comparing.runs import make, read
from tests.operations.packages import record_rows, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rows(steps: Sequence[int], since: float = math.inf, **others: float) -> list[dict[str, float]]:
    """A loss that differs in its last bit from a step on."""
    return [
        {"step": step, "epoch": 0, "train/loss": math.nextafter(1 / step, 2) if step >= since else 1 / step,
         **others}
        for step in steps
    ]  # fmt: skip


def parting(folder: Path, one: list[dict[str, float]], two: list[dict[str, float]]) -> CurveParting:
    return compare_curves(*read(make(folder / "runs", "a", rows=one), make(folder / "runs", "b", rows=two)))


def test_one_bit_is_seen_and_where(tmp_path: Path) -> None:
    steps = range(10, 200, 10)
    found = parting(tmp_path, rows(steps), rows(steps, since=130, lr=0.1))
    assert (found.equal_until, found.step, found.compared) == (120, 130, 19)
    (metric,) = found.metrics
    assert metric.name == "train/loss" and metric.values == [1 / 130, math.nextafter(1 / 130, 2)]
    assert found.num_metrics == 1 and found.starts == []


def test_equal_and_different_from_the_first(tmp_path: Path) -> None:
    found = parting(tmp_path / "1", rows([10, 20]), rows([10, 20, 30]))
    assert (found.equal_until, found.step, found.compared, found.metrics) == (20, None, 2, [])
    found = parting(tmp_path / "2", rows([10, 20]), rows([10, 20], since=0))
    assert (found.equal_until, found.step) == (None, 10)
    found = parting(tmp_path / "3", rows([10]), rows([20]))
    assert (found.equal_until, found.step, found.compared) == (None, None, 0)


def test_equal_nan_and_a_negative_zero(tmp_path: Path) -> None:
    found = parting(tmp_path, rows([10, 20], x=math.nan, y=0.0), rows([10, 20], x=math.nan, y=-0.0))
    assert (found.equal_until, found.step) == (None, 10) and [one.name for one in found.metrics] == ["y"]


def test_means_over_other_steps_are_not_compared(tmp_path: Path) -> None:
    """A row each 10 steps and one each 20: a training value is a mean since the row before, a validation is
    not."""
    one = [{**row, "valid/loss": 1 / row["step"]} for row in rows([10, 20, 30, 40], since=0)]
    two = [{**row, "valid/loss": 1 / row["step"]} for row in rows([20, 40])]
    found = parting(tmp_path / "1", one, two)
    assert (found.compared, found.step, found.equal_until) == (2, None, 40)
    two[1]["valid/loss"] = 7.0
    found = parting(tmp_path / "2", one, two)
    assert (found.step, found.equal_until) == (40, 20) and [x.name for x in found.metrics] == ["valid/loss"]


def test_sessions_that_may_be_the_reason(tmp_path: Path) -> None:
    steps = range(10, 100, 10)
    one, two = (make(tmp_path / "runs", name, rows=rows(steps)) for name in "ab")
    two.new_session({"kind": "train", "overrides": []})
    record_rows(two, 2, 50, rows(range(60, 100, 10), since=70))
    session(two, "succeeded", host="third")
    record_rows(two, 3, 80, rows([90], since=70))
    found = compare_curves(*read(one, two))
    assert (found.equal_until, found.step) == (60, 70) and found.starts == []
    number = two.new_session({"kind": "train", "overrides": ["optimizers.main.lr=0.2"]})
    record_rows(two, number, 60, rows(range(70, 100, 10), since=70))
    found = compare_curves(*read(one, two))
    assert [(start.run, start.session, start.step, start.overrides) for start in found.starts] == [
        (1, number, 60, ["optimizers.main.lr=0.2"])
    ]


def test_many_metrics_are_counted(tmp_path: Path) -> None:
    names = {f"m{n}": 1.0 for n in range(50)}
    found = parting(tmp_path, rows([10], **names), rows([10], **dict.fromkeys(names, 2.0)))
    assert len(found.metrics) == 20 and found.num_metrics == 50
