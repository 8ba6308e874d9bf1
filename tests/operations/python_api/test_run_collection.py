"""Many runs at once, from Python."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roost
from roost.base.errors import NotFound, Refused, UsageError
from tests.messages import Messages
from tests.operations.packages import ROWS, VALUES, package
from tests.package.dlnest.original import original

RATES = {"a": 0.1, "b": 0.01, "c": 0.001}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (name, rate) in enumerate(RATES.items()):
        rows = [{**row, "valid/accuracy": 0.9 + number / 100} for row in ROWS]
        package(tmp_path / "runs", name, rows=rows, values=_values(rate), checkpoints=False)
    return tmp_path / "runs"


def _values(rate: float) -> dict[str, Any]:
    return {**VALUES, "optimizers": {"main": {"class": "torch.optim.SGD", "lr": rate}}, "sizes": [8, 16]}


def test_sorted_by_a_query_and_taken_by_position_and_name(folder: Path, messages: Messages) -> None:
    found = roost.runs(folder, "lr<0.05 sort:-valid/accuracy")
    assert found.names == ["c", "b"] and [run.path.name for run in found] == ["c", "b"]
    assert found[-1].path == folder / "b" == found["b"].path and found[:1].names == ["c"]
    assert isinstance(found[0], roost.Package)
    with pytest.raises(NotFound) as error:
        found["bb"]
    messages.check(str(error.value))
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(UsageError):
        roost.runs(folder, "lrr<1")
    with pytest.raises(NotFound):
        roost.runs(folder / "away")


def test_of_the_current_folder_of_one_package_and_of_several_folders(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "older", "a", checkpoints=False)
    monkeypatch.chdir(tmp_path)
    assert roost.runs().names == ["a", "b", "c"]
    assert roost.runs("runs/b").names == ["b"]
    both = roost.runs([folder, "older"], "sort:name")
    assert both.names == ["a", "a", "b", "c"]
    assert both.columns()["folder"] == [str(folder), str(tmp_path / "older"), str(folder), str(folder)]
    assert roost.runs(query="name:b").names == ["b"]


def test_settings_and_newest_metrics_side_by_side(folder: Path, tmp_path: Path) -> None:
    other = package(tmp_path / "other", "z", checkpoints=False, values={**VALUES, "state": "mine"})
    found = roost.runs([folder, other.path.parent])
    assert found.settings["optimizers.main.lr"] == [0.1, 0.01, 0.001, 0.1]
    assert found.settings["sizes"] == [[8, 16]] * 3 + [None]
    assert found.metrics["valid/accuracy"] == [0.9, 0.91, 0.92, None]
    assert found.metrics["valid/loss"] == [0.75] * 4
    assert list(found.varying) == ["optimizers.main.lr", "sizes", "state"]
    columns = found.columns()
    assert columns["state"] == ["succeeded"] * 4 and columns["settings.state"] == [None] * 3 + ["mine"]
    assert {len(values) for values in columns.values()} == {4}
    assert [one.last for one in found.summaries] == [0.75] * 4


def test_none_that_vary_and_none_at_all(folder: Path, tmp_path: Path) -> None:
    assert roost.runs(folder, "lr=0.1").varying == {}
    (tmp_path / "empty").mkdir()
    none = roost.runs(tmp_path / "empty")
    assert (
        len(none) == 0
        and none.settings == none.varying == none.metrics == {}
        and none.columns()["name"] == []
    )
    assert repr(none) == none._repr_html_().removeprefix("<p>").removesuffix("</p>") == "0 runs"


def test_a_setting_that_is_not_a_number_does_not_vary(tmp_path: Path) -> None:
    for name in "ab":
        package(tmp_path / "runs", name, checkpoints=False, values={**VALUES, "least": math.nan})
    assert "least" not in roost.runs(tmp_path / "runs").varying


def test_the_same_run_is_equal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = roost.runs(folder)
    assert found[1] in found and found.index(found["b"]) == 1 and len({found[0], found[0], found[1]}) == 2
    monkeypatch.chdir(folder)
    assert roost.open_package("b") == found["b"] != found["a"]


def test_tables(folder: Path) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    found = roost.runs(folder, "sort:-lr")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.index) == ["a", "b", "c"]
    assert frame.loc["b", "optimizers.main.lr"] == 0.01 and frame["valid/accuracy"].max() == 0.92
    table = found.to_arrow()
    assert isinstance(table, arrow.Table) and table["optimizers.main.lr"].to_pylist() == [0.1, 0.01, 0.001]


def test_a_picture_of_the_list(tmp_path: Path, messages: Messages) -> None:
    for number in range(25):
        values = {
            **VALUES,
            "seed": number,
            "about": "<b>\x1b[31m\n" + "x" * 99,
            "key\x1b[31m": number,
            "many": dict.fromkeys("abcdefg", number),
        }
        package(tmp_path / "runs", f"r{number:02}", checkpoints=False, values=values)
    shown = repr(roost.runs(tmp_path / "runs"))
    assert "\x1b" not in shown
    messages.check(shown)
    assert "r19" in shown and "r20" not in shown
    shown = roost.runs(tmp_path / "runs")._repr_html_()
    assert shown.count("<tr>") == 21 and "<b>" not in shown and "\x1b" not in shown


def test_metrics_of_one_run(folder: Path, messages: Messages) -> None:
    run = roost.open_package(folder / "b")
    found = run.metrics("valid/*")
    assert sorted(found) == ["valid/accuracy", "valid/loss"]
    steps, values = found["valid/loss"]
    assert steps.tolist() == [10, 20, 30] and values.tolist() == [1.5, 0.5, 0.75]
    assert steps.dtype == np.int64 and values.dtype == np.float64
    assert run.metrics("test/loss")["test/loss"].steps.tolist() == [30]
    assert run.metrics("nothing/*") == {} and "step" not in run.metrics()
    with pytest.raises(NotFound) as error:
        run.metrics("valid/los")
    messages.check(str(error.value).replace(str(folder), "<runs>"))
    assert [row["step"] for row in run.rows()] == [10, 20, 30] and run.rows()[-1]["test/loss"] == 0.7
    assert (str(run.state), run.settings) == ("succeeded", run.args), (
        "no methods: `print(run.state)` shows it"
    )
    summary = run.summary
    assert (summary.state, summary.step, summary.last) == ("succeeded", 30, 0.75)
    shown = run._repr_html_()
    assert "<td>valid/accuracy</td><td>0.91</td>" in shown
    assert f"<td>started</td><td>{time.strftime('%Y-%m-%d', time.localtime(summary.started))} " in shown


def test_times_and_norms_are_asked_for_by_name(tmp_path: Path) -> None:
    rows = [{**row, "perf/data_ms": 1.0, "stats/weight": 2.0} for row in ROWS]
    run = roost.open_package(package(tmp_path / "runs", "one", rows=rows, checkpoints=False).path)
    assert sorted(run.metrics()) == ["lr", "test/loss", "train/loss", "valid/loss"]
    assert list(run.metrics("perf/*")) == ["perf/data_ms"]
    assert list(run.metrics("stats/weight")) == ["stats/weight"]


def test_the_tables_of_one_run(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    run = roost.open_package(package(tmp_path / "runs", "one", checkpoints=False).path)
    frame = run.to_pandas()
    assert list(frame.index) == [10, 20, 30] and frame["train/loss"].tolist() == [2.0, 1.0, 0.5]
    assert frame["test/loss"].isna().tolist() == [True, True, False]
    table = run.to_arrow()
    assert table["test/loss"].to_pylist() == [None, None, 0.7] and table["step"].to_pylist() == [10, 20, 30]


def test_runs_are_compared(tmp_path: Path, messages: Messages) -> None:
    for number, name in enumerate("ab"):
        package(tmp_path / "runs", name, values={**VALUES, "seed": number}, checkpoints=False)
    found = roost.runs(tmp_path / "runs").compare(metrics=["valid/*"], step=20)
    assert [one.name for one in found.settings] == ["seed"] and found.relation.only_seed
    assert [(one.name, one.at) for one in found.metrics] == [("valid/loss", [0.5, 0.5])]
    messages.check(str(found))
    html = found._repr_html_()
    assert html.count("<tr>") == 3 and "<th>seed</th>" in html and "\x1b" not in html
    with pytest.raises(UsageError):
        roost.runs(tmp_path / "runs")[:1].compare()


def test_the_text_of_a_comparison_is_short(tmp_path: Path) -> None:
    for number in range(22):
        values = {**VALUES, **{f"s{at}": number * at for at in range(9)}, "name\x1b<b>": number}
        package(tmp_path / "runs", f"r{number:02}", values=values, checkpoints=False)
    found = roost.runs(tmp_path / "runs").compare()
    text = repr(found)
    lines = text.splitlines()
    assert len(lines) < 30 and max(map(len, lines)) < 250 and "\x1b" not in text
    assert "and 2 more runs" in text and "more settings differ: .settings" in text
    assert "<b>" not in found._repr_html_()


def test_what_roost_must_not_write_is_listed_and_not_changed(folder: Path) -> None:
    original(folder / "old")
    newer = roost.runs(folder)["a"]
    request = newer.request | {"format": 99}
    (newer.path / "request.json").write_text(json.dumps(request))
    found = roost.runs(folder)
    assert "old" in found.names and found["old"].summary.state == "foreign"
    for read in (found["old"].load, lambda: found["old"].settings, lambda: found["old"].tag("x")):
        with pytest.raises(NotFound, match="DLNest"):
            read()
    for label in (lambda: newer.tag("x"), newer.star, lambda: newer.set_note("x")):
        with pytest.raises(Refused, match="format 99"):
            label()
    assert not list(folder.glob("*/_labels.json"))
