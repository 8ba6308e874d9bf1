"""Last, best and common values of metrics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound
from roost.operations.comparing.comparison import MetricComparison
from roost.operations.comparing.metric_comparison import MetricTable, RunRecords
from roost.operations.curves import history_cache
from roost.package.package import PackageFolder
from tests.operations.comparing.runs import make, read
from tests.operations.packages import ROWS, TIMES, record_rows, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def collect(*made: PackageFolder, **options: Any) -> tuple[MetricTable, dict[str, MetricComparison]]:
    runs = read(*made)
    table = MetricTable(runs, **{"step": None, **options})
    for position, run in enumerate(runs):
        table.add(position, run)
    return table, {one.name: one for one in table.comparisons()}


def test_last_best_and_at_the_last_common_step(tmp_path: Path) -> None:
    longer = [*ROWS, {"step": 40, "epoch": 4, "train/loss": 0.25, "valid/loss": 0.25}]
    table, found = collect(make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b", rows=longer))
    assert table.step == 30 and list(found) == ["valid/loss", "test/loss", "train/loss", "lr"]
    loss = found["valid/loss"]
    assert loss.monitored and loss.mode == "min"
    assert (loss.last, loss.last_steps) == ([0.75, 0.25], [30, 40])
    assert (loss.best, loss.best_steps) == ([0.5, 0.25], [20, 40])
    assert (loss.at, loss.at_steps) == ([0.75, 0.75], [30, 30])
    assert found["lr"].mode is None and found["lr"].best == [None, None]
    assert not found["test/loss"].monitored


def test_at_a_step_of_ones_choice(tmp_path: Path) -> None:
    rows = [{"step": 15, "epoch": 1, "valid/loss": 3.0}]
    _, found = collect(make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b", rows=rows), step=19)
    assert (found["valid/loss"].at, found["valid/loss"].at_steps) == ([1.5, 3.0], [10, 15])
    assert (found["test/loss"].at, found["test/loss"].last) == ([None, None], [0.7, None])


def test_the_mode_is_that_of_a_rule_else_of_the_name(tmp_path: Path) -> None:
    rows = [
        {"step": 10, "epoch": 0, "valid/loss": 1.0, "valid/top1_error": 0.5, "x/AUC": 0.1,
         "valid/bleu-4": 3.0, "strange": 1.0, "train/accuracy": 0.5},
    ]  # fmt: skip
    rules = {"best": [{"monitor": "valid/loss", "mode": "max"}]}
    stop = {"monitor": "strange"}
    _, found = collect(make(tmp_path / "runs", "a", rows=rows, checkpoint=rules, early_stopping=stop))
    modes = {name: one.mode for name, one in found.items()}
    assert modes == {
        "valid/loss": "max", "strange": "min", "valid/top1_error": "min", "x/AUC": "max",
        "valid/bleu-4": "max", "train/accuracy": "max",
    }  # fmt: skip
    assert list(found)[:2] == ["valid/loss", "strange"]
    _, found = collect(
        make(tmp_path / "runs", "b", rows=rows), make(tmp_path / "runs", "c", rows=rows, checkpoint=rules)
    )
    assert found["valid/loss"].mode is None  # the rules of the two disagree


def test_values_that_are_not_finite_are_never_the_best(tmp_path: Path) -> None:
    rows = [
        {"step": n, "epoch": 0, "valid/loss": value} for n, value in enumerate([-math.inf, 2.0, math.nan])
    ]
    _, found = collect(make(tmp_path / "runs", "a", rows=rows))
    loss = found["valid/loss"]
    assert math.isnan(loss.last[0] or 0) and (loss.best, loss.best_steps) == ([2.0], [1])


def test_requested_metrics(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a", rows=[{**row, **TIMES} for row in ROWS])
    _, found = collect(made, names=["loss"])
    assert list(found) == ["valid/loss", "test/loss", "train/loss"]
    _, found = collect(made, names=["perf/host*"])
    assert found["perf/host_mb"].last == [400.0]
    assert "perf/host_mb" not in collect(made)[1]
    table, _ = collect(made, names=["valid/los"])
    with pytest.raises(NotFound, match="valid/loss"):
        table.require_names()
    for wrong, fix in (("vald/*", r"did you mean 'valid/\*'"), ("zzz", "there are: .*train/loss.*, perf/")):
        with pytest.raises(NotFound, match=fix):
            collect(made, names=[wrong])[0].require_names()


def test_records_that_were_cut_within_a_line_or_go_back(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    session(made, "stopped")
    record_rows(made, 2, 20, [{"step": 25, "epoch": 2, "valid/loss": 9.0}])
    with open(made.path / "records" / "2.jsonl", "ab") as file:
        file.write(b'{"step": 30, "epoch": 3, "valid/lo')
    table, found = collect(made)
    assert table.step == 25 and (found["valid/loss"].last, found["valid/loss"].last_steps) == ([9.0], [25])
    session(made, "running")
    record_rows(made, 3, 10, [])  # has begun, and has no row yet
    table, found = collect(made)
    assert table.step == 10 and found["valid/loss"].last_steps == [10]


def test_a_removed_package_has_no_metrics(tmp_path: Path) -> None:
    assert RunRecords(tmp_path / "none").names == []
    table, found = collect(PackageFolder(tmp_path / "none"))
    assert table.step is None and found == {}


def test_twelve_thousand_metrics(tmp_path: Path) -> None:
    rows = [{"step": n, "epoch": 0, "valid/loss": 1.0, **{f"m/{k}": float(k) for k in range(12_000)}}
            for n in (1, 2)]  # fmt: skip
    table, found = collect(*(make(tmp_path / "runs", name, rows=rows) for name in "ab"))
    assert len(found) == 12_001 and found["m/11999"].last == [11999.0, 11999.0] and table.num_left_out == 0


def test_of_many_runs_with_many_metrics_the_most_important_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.operations.comparing.metric_comparison._MAX_VALUES", 4)
    first = make(
        tmp_path / "runs", "a", rows=[{"step": 1, "epoch": 0, "x": 1.0, "valid/loss": 1.0, "b": 2.0}]
    )
    second = make(tmp_path / "runs", "b", rows=[{"step": 1, "epoch": 0, "a": 1.0, "valid/loss": 1.0}])
    table, found = collect(first, second)
    assert list(found) == ["valid/loss", "a"] and table.num_left_out == 2


def test_a_damaged_cache_is_rebuilt(tmp_path: Path) -> None:
    rows = [{"step": n, "epoch": 0, "valid/loss": float(n)} for n in range(40_000)]
    made = make(tmp_path / "runs", "a", rows=rows)
    collect(made)
    (cached,) = (one for one in (tmp_path / "cache").rglob("records/*"))
    data = bytearray(cached.read_bytes())
    data[-8:] = b"\xff" * 8
    cached.write_bytes(data)
    with pytest.raises(history_cache.DamagedCache):
        history_cache.History(made.path / "records").series("valid/loss")
    _, found = collect(made)
    assert found["valid/loss"].last == [39_999.0]
