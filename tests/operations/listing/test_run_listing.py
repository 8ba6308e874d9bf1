"""The columns of a list of packages."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base.errors import UsageError
from roost.operations.keeping.allocated_bytes import folder_bytes
from roost.operations.listing.run_listing import complete_rows, is_same, list_runs, short_names
from roost.package import labels
from roost.package.package import PackageFolder
from tests.operations.packages import VALUES, package, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(folder: Path, name: str, **values: Any) -> Path:
    return package(folder, name, values={**VALUES, **values}, checkpoints=False).path


def optimizer(rate: float) -> dict[str, Any]:
    return {"main": {"class": "torch.optim.SGD", "lr": rate}}


def test_what_varies_is_shown_by_its_shortest_name(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        run(
            tmp_path / "runs",
            name,
            optimizers=optimizer(0.1 * number),
            seed=number,
            one={"x": 1},
            two={"x": number},
        )
    found = list_runs([tmp_path / "runs"])
    assert found.columns == {"seed": [0, 1, 2], "lr": [0.0, 0.1, 0.2], "two.x": [0, 1, 2]}
    assert found.hidden == 0 and [row.name for row in found.rows] == ["a", "b", "c"]


def test_what_only_some_have_comes_after_what_all_have(tmp_path: Path) -> None:
    run(tmp_path / "runs", "a", deep={"er": 1}, only=3)
    run(tmp_path / "runs", "b", deep={"er": 2})
    assert list(list_runs([tmp_path / "runs"]).columns.items()) == [("er", [1, 2]), ("only", [3, None])]


def test_what_a_query_names_is_shown_once(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        run(tmp_path / "runs", name, optimizers=optimizer(rate))
    found = list_runs([tmp_path / "runs"], "lr>0 max_epochs=3 status:succeeded sort:-test/loss")
    assert found.columns == {"lr": [0.1, 0.2], "max_epochs": [3, 3], "test/loss": [0.7, 0.7]}
    found = list_runs([tmp_path / "runs"], "optimizers.main.lr>0")
    assert found.columns == {"optimizers.main.lr": [0.1, 0.2]}


def test_a_limit_counts_what_it_hides_and_only_what_is_shown_varies(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        run(tmp_path / "runs", name, seed=min(number, 1))
    found = list_runs([tmp_path / "runs"], "sort:-name", limit=3)
    assert [row.name for row in found.rows] == ["d", "c", "b"] and found.hidden == 1 and found.columns == {}
    assert list_runs([tmp_path / "runs"], limit=1).columns == {}


def test_a_list_that_is_cut_without_an_order_has_what_started_last(tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    def shown(query: str = "", **options: Any) -> str:
        found = list_runs([tmp_path], query, **options)
        return "".join(row.name for row in found.rows) + f" {found.hidden}"

    for started, name in enumerate("dbca"):
        package(folder, name, values=VALUES, checkpoints=False, started=100.0 + started)
    package(folder, "0", state="new")
    assert shown(limit=2) == "ac 3" and shown("status:succeeded", limit=2) == "ac 2"
    os.utime(folder, (50, 50))  # settled: from now on the index alone says which are the newest
    for _ in range(2):
        assert shown(limit=2) == "ac 3" and shown(limit=4) == "abcd 1" and shown(limit=9) == "0abcd 0"
    labels.add_tags(folder / "a", ["seen"])
    assert list_runs([folder], limit=2).rows[0].tags == ["seen"]
    session(PackageFolder(folder / "0"), "running", started=200.0)  # no change of the folder itself
    assert shown(limit=2) == "0a 3" and list_runs([folder], limit=1).rows[0].state == "running"
    shutil.rmtree(folder / "a")
    assert shown(limit=2) == "0c 2"
    package(folder, "b2", values=VALUES, started=300.0)
    assert shown(limit=2) == "0b2 3"
    shutil.rmtree(folder / "d")  # one that is not shown
    assert shown(limit=2) == "0b2 2"
    package(tmp_path, "own", values=VALUES)  # a folder with packages of its own is listed before its runs
    assert shown(limit=2) == "own 0"


def test_columns_of_ones_choice(tmp_path: Path) -> None:
    made = run(tmp_path / "runs", "a", sizes=[1, 2])
    run(tmp_path / "runs", "b", seed=1)
    found = list_runs([tmp_path / "runs"], columns=["sizes", "valid/loss", "size", "task"])
    assert found.columns["sizes"] == [[1, 2], None] and found.columns["valid/loss"] == [0.75, 0.75]
    assert found.columns["task"] == [None, None]
    taken = sum(one.lstat().st_blocks * 512 for one in [made, *made.rglob("*")])
    assert found.columns["size"][0] == taken > 0
    with pytest.raises(UsageError):
        list_runs([tmp_path / "runs"], columns=["nothing"])


def test_all_that_is_known(tmp_path: Path) -> None:
    run(tmp_path / "runs", "a", sizes=[1, 2])
    run(tmp_path / "other", "b")
    first, second = complete_rows(list_runs([tmp_path / "runs", tmp_path / "other"], columns=["size"]))
    assert first["folder"] == str(tmp_path / "runs") and second["folder"] == str(tmp_path / "other")
    assert first["settings"]["sizes"] == [1, 2] and "sizes" not in second["settings"]
    assert first["settings"]["optimizers.main.lr"] == 0.1 and first["metrics"]["test/loss"] == 0.7
    assert first["columns"]["size"] > 0 and first["state"] == "succeeded"
    assert "columns" not in complete_rows(list_runs([tmp_path / "runs"], columns=[]))[0]


def test_none_and_damaged_ones(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert list_runs([tmp_path / "empty"]).columns == {} == list_runs([tmp_path / "empty"], "lr<1").columns
    made = run(tmp_path / "runs", "a")
    run(tmp_path / "runs", "b", seed=1)
    (made / "args.json").write_text("{")
    run(tmp_path / "runs", "c", seed=2)
    found = list_runs([tmp_path / "runs"])
    assert [row.state for row in found.rows] == ["damaged", "succeeded", "succeeded"]
    assert found.columns == {"seed": [None, 1, 2]}  # what cannot be read differs in nothing


def test_equal_settings() -> None:
    assert is_same(math.nan, math.nan) and is_same([1], [1]) and is_same("a", "a") and is_same(None, None)
    assert not is_same(1, True) and not is_same(1, 1.0) and not is_same(None, 0) and not is_same([1], [2])


def test_the_shortest_end_that_is_the_only_one() -> None:
    known = ["a.lr", "b.lr", "model.width", "width", "c.d.e"]
    assert short_names(known, known) == {
        "a.lr": "a.lr", "b.lr": "b.lr", "model.width": "model.width", "width": "width", "c.d.e": "e"
    }  # fmt: skip
    known = ["model.size", "model.state", "step"]
    assert short_names(known, known) == {
        "model.size": "model.size", "model.state": "model.state", "step": "settings.step"
    }  # fmt: skip


def test_the_place_on_the_disk_selects_sorts_and_is_no_setting(tmp_path: Path) -> None:
    for name, size, num_bytes in (("a", "small", 5 << 20), ("b", "large", 1 << 20), ("c", "large", 9 << 20)):
        (run(tmp_path, name, model={"size": size}) / "media.bin").write_bytes(bytes(num_bytes))
    assert list_runs([tmp_path]).columns == {"model.size": ["small", "large", "large"]}
    found = list_runs([tmp_path], "size>3MB sort:-size")
    assert [row.name for row in found.rows] == ["c", "a"]
    assert found.columns["size"] == [folder_bytes(tmp_path / "c"), folder_bytes(tmp_path / "a")]
    with pytest.raises(UsageError, match="'small'") as refused:
        list_runs([tmp_path], "size:small")
    assert refused.value.setting == "query"


def test_an_integer_of_any_size_is_listed_sorted_and_written(tmp_path: Path) -> None:
    for at in range(40):  # so many that the index is written
        run(tmp_path, f"{at:02}", huge=10**30 + at * 10**29)
    listing = list_runs([tmp_path], "sort:-huge", limit=2)
    assert listing.columns == {"huge": [4.9e30, 4.8e30]}
    rows = json.loads(msgspec.json.encode(complete_rows(listing)))
    assert [row["settings"]["huge"] for row in rows] == [4.9e30, 4.8e30]
