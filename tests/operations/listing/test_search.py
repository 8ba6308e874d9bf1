"""Which runs a query means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import UsageError
from roost.operations.listing.list_packages import entries, list_packages
from roost.operations.listing.package_row import FoundPackage, IndexEntry, PackageSummary
from roost.operations.listing.search import search
from tests.messages import Messages
from tests.operations.packages import ROWS, VALUES, package, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


RATES = {"a": 0.1, "b": 0.01, "c": 0.001}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three packages, and one that has not begun."""
    for number, (name, rate) in enumerate(RATES.items()):
        rows = [{**row, "valid/accuracy": 0.9 + number / 100} for row in ROWS]
        package(tmp_path / "runs", name, rows=rows, values=_values(rate), checkpoints=False,
                state="failed" if name == "c" else "succeeded", seconds=60.0 * (number + 1))  # fmt: skip
    package(tmp_path / "runs", "new", state="new", values={"model": {"features": 16}})
    return tmp_path / "runs"


def _values(rate: float) -> dict[str, Any]:
    main = {"class": "torch.optim.SGD", "lr": rate, "betas": [0.9, 0.99]}
    return {**VALUES, "optimizers": {"main": main, "other": {"class": "x.Y", "lr": 7}}, "flag": rate > 0.05}


def names(runs: Path, query: str) -> str:
    return " ".join(row.name for row in list_packages(runs, query))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "a b c new"),
        ("status:succeeded", "a b"),
        ("status!=succeeded", "c new"),
        ("optimizers.main.lr<0.05", "b c"),
        ("optimizers.main.lr<=0.01 optimizers.main.lr>=1e-2", "b"),
        ("main.lr=0.1", "a"),
        ("optimizers.*.lr=7", "a b c"),
        ("lr=7", "a b c"),
        ("lr!=0.1", "b c"),
        ("betas=0.99 betas=0.9", "a b c"),
        ("betas!=0.9", ""),
        ("flag=true", "a"),
        ("flag:FALSE", "b c"),
        ("main.class:sgd", "a b c"),
        ("main.class=sgd", ""),
        ("features>8", "new"),
        ("valid/accuracy>=0.91", "b c"),
        ("valid/accuracy>=0.91 state:failed", "c"),
        ("seconds>1m", "b c"),
        ("TEST step=30", "a b c"),
        ("name:ne", "new"),
        ("name=ne", ""),
        ("sort:-valid/accuracy", "c b a new"),
        ("sort:valid/accuracy", "a b c new"),
        ("sort:-step", "a b c new"),
        ("sort:state sort:-main.lr", "c new a b"),
        ("sort:-state", "a b new c"),
    ],
)
def test_meant(runs: Path, query: str, found: str) -> None:
    assert names(runs, query) == found
    assert names(runs, query) == found  # and from the index


@pytest.mark.parametrize(
    ("query", "place", "near"),
    [
        ("valid/acuracy>0.5", 1, "'valid/accuracy'"),
        ("stpe>3", 1, "'step'"),
        ("b featres=3", 3, "'features'"),
        ("sort:-optimizers.mian.lr", 7, "'optimizers.main.lr'"),
    ],
)
def test_a_key_that_no_run_has(runs: Path, query: str, place: int, near: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        list_packages(runs, query)
    assert refused.value.setting == "query" and f" {place}: " in refused.value.detail
    assert near in str(refused.value.fix)
    messages.check(refused.value)


def test_an_end_that_several_settings_have(tmp_path: Path, messages: Messages) -> None:
    values = {**VALUES, "model": {"size": {"x": 1}}, "data": {"x": 2}}
    package(tmp_path / "runs", values=values, checkpoints=False)
    with pytest.raises(UsageError) as refused:
        list_packages(tmp_path / "runs", "x=1")
    assert refused.value.setting == "query"
    assert "data.x, model.size.x" in str(refused.value)
    messages.check(refused.value)
    assert names(tmp_path / "runs", "size.x=1") == "one" == names(tmp_path / "runs", "model.*.x=1")


def test_metrics_behind_settings(tmp_path: Path) -> None:
    package(tmp_path / "runs", checkpoints=False, values={"model": {"features": 8}})
    assert names(tmp_path / "runs", "lr=0.1") == "one"  # recorded, and no setting here
    package(tmp_path / "runs", "two", checkpoints=False, values={"lr": 3})
    assert names(tmp_path / "runs", "lr=0.1") == ""


def test_overrides_of_sessions_are_in_effect(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    number = made.new_session({"kind": "train", "overrides": ["model.features=9"]})
    record = (made.path / "sessions" / "1.json").read_text().replace('"session": 1', f'"session": {number}')
    (made.path / "sessions" / f"{number}.json").write_text(record)
    assert names(tmp_path / "runs", "features=9") == "one"


def test_values_that_are_no_numbers_come_last_and_match_nothing(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", math.nan), ("c", math.inf), ("d", -math.inf)):
        package(tmp_path / "runs", name, rows=[{**ROWS[0], "valid/loss": loss}], checkpoints=False)
    assert names(tmp_path / "runs", "sort:valid/loss") == "d a c b"
    assert names(tmp_path / "runs", "sort:-valid/loss") == "c a d b"
    assert names(tmp_path / "runs", "valid/loss>0") == "a c"
    assert names(tmp_path / "runs", "valid/loss!=1") == "b c d"
    assert names(tmp_path / "runs", "valid/loss=nan") == "b"


def test_what_runs_is_seen_as_it_is(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    assert names(tmp_path / "runs", "valid/loss<0.6") == ""
    session(made, "running")
    with (made.path / "records" / "1.jsonl").open("a") as file:
        file.write('{"step":40,"epoch":4,"time":1.0,"valid/loss":0.5}\n')
    assert names(tmp_path / "runs", "valid/loss<0.6 status:running") == "one"


def test_a_literal_text_of_any_length_is_quick() -> None:
    row = PackageSummary(name="a" * 5000, state="new", description="(a+)+$" * 100)
    found = [FoundPackage(Path(), "x", IndexEntry((0, 0), row))]
    assert search(found, f"{'a' * 2000}b") == [] and search(found, "(a+)+$") == found


def test_several_folders(tmp_path: Path) -> None:
    for root in ("one", "two"):
        package(tmp_path / root, f"of-{root}", values={"x": root}, checkpoints=False)
    found = [
        FoundPackage(tmp_path / root, *one)
        for root in ("one", "two")
        for one in entries(tmp_path / root).items()
    ]
    assert [one.name for one in search(found, "x=two")] == ["of-two"]
    assert [one.name for one in search(found, "sort:-x")] == ["of-two", "of-one"]
    assert search([], "anything<3") == []


def test_packages_of_dlnest_are_found_by_their_state(runs: Path) -> None:
    (runs / "theirs" / "Checkpoints").mkdir(parents=True)
    (runs / "theirs" / "args.json").write_text('{"runner_file_path": "Model/Runner.py"}')
    assert names(runs, "status:foreign") == "theirs"
    assert names(runs, "state!=foreign") == "a b c new"
