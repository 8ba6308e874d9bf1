"""The facts of a folder's packages, remembered by key."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from roost.operations.cache_folder import cache_folder
from roost.operations.listing import search_fields, search_index
from roost.operations.listing.list_packages import entries
from roost.operations.listing.search_index import METRIC_PREFIX, SETTING_PREFIX, SearchIndex
from tests.operations.packages import package, session


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(search_index, "_MAX_STALE", 0)
    for number, name in enumerate("abc"):
        package(tmp_path / "runs", name, values={"lr": number, name: True}, checkpoints=False)
    return tmp_path / "runs"


def column(index: SearchIndex, runs: Path, key: str) -> dict[str, list[Any]]:
    """The values of those that have the key."""
    get = index.values(key)
    return {name: list(get(name)) for name in entries(runs) if get(name)}


def rates(runs: Path) -> dict[str, list[int]]:
    return column(SearchIndex(runs, entries(runs)), runs, SETTING_PREFIX + "lr")


def the_file() -> Path:
    (found,) = (cache_folder() / "ls").glob("*.facts")
    return found


def test_remembered(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SearchIndex(runs, entries(runs))
    monkeypatch.setattr(search_fields, "read_search_fields", None)  # nobody looks a second time
    again = SearchIndex(runs, entries(runs))
    assert again.keys == first.keys >= {SETTING_PREFIX + "a", METRIC_PREFIX + "valid/loss"}
    for key in first.keys:
        assert column(again, runs, key) == column(first, runs, key)
    assert rates(runs) == {"a": [0], "b": [1], "c": [2]}
    assert (
        column(again, runs, SETTING_PREFIX + "b") == {"b": [True]}
        and column(again, runs, SETTING_PREFIX + "none") == {}
    )


def test_follows_what_changes(runs: Path) -> None:
    rates(runs)
    shutil.rmtree(runs / "b")
    package(runs, "d", values={"lr": 9, "d": 1}, checkpoints=False)
    again = package(runs / ".." / "other", "a", values={"lr": 7}, checkpoints=False)
    shutil.rmtree(runs / "a")
    again.path.rename(runs / "a")
    for _ in range(2):
        known = SearchIndex(runs, entries(runs))
        assert column(known, runs, SETTING_PREFIX + "lr") == {"a": [7], "c": [2], "d": [9]}
        assert column(known, runs, SETTING_PREFIX + "a") == {} and column(
            known, runs, SETTING_PREFIX + "c"
        ) == {"c": [True]}
    assert b"setting b" not in the_file().read_bytes()


def test_what_runs_is_not_remembered(runs: Path) -> None:
    rates(runs)
    made = package(runs, "d", values={"lr": 9}, checkpoints=False)
    session(made, "running")
    before = the_file().stat().st_ino
    with (made.path / "records" / "1.jsonl").open("a") as file:
        for loss in (0.5, 0.25):
            file.write(f'{{"step":40,"epoch":4,"time":1.0,"valid/loss":{loss}}}\n')
            file.flush()
            assert column(SearchIndex(runs, entries(runs)), runs, METRIC_PREFIX + "valid/loss")["d"] == [loss]
    assert the_file().stat().st_ino == before


def test_few_changes_are_not_worth_a_new_file(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_MAX_STALE", 3)
    assert len(rates(runs)) == 3 and not list((cache_folder() / "ls").glob("*.facts"))
    package(runs, "d", values={"lr": 9}, checkpoints=False)
    assert len(rates(runs)) == 4 and the_file()


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "short", "of another folder", "old"])
def test_a_damaged_one_is_made_anew(runs: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    rates(runs)
    path = the_file()
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-3] ^= 1
    elif damage == "of another folder":
        other = package(runs.parent / "more", checkpoints=False).path.parent
        SearchIndex(other, entries(other))
        (found,) = (one for one in path.parent.glob("*.facts") if one != path)
        data = bytearray(found.read_bytes())
        found.unlink()
    elif damage == "old":
        monkeypatch.setattr(search_index, "_FORMAT", search_index._FORMAT + 1)
    path.write_bytes(data[: {"empty": 0, "cut": -5, "short": 7}.get(damage, len(data))])
    made = path.stat().st_ino
    assert rates(runs) == {"a": [0], "b": [1], "c": [2]}
    assert the_file().stat().st_ino != made


def test_several_at_once(runs: Path) -> None:
    found: list[dict[str, list[int]]] = []
    threads = [threading.Thread(target=lambda: found.append(rates(runs))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"a": [0], "b": [1], "c": [2]}] * 8
    assert [one.suffix for one in sorted(the_file().parent.iterdir())] == [".facts", ".json"]


def test_what_all_have_in_common_is_known_without_reading_it(tmp_path: Path, runs: Path) -> None:
    def made(name: str, **values: Any) -> SearchIndex:
        package(tmp_path / "more", name, values=values, checkpoints=False)
        SearchIndex(tmp_path / "more", entries(tmp_path / "more"))
        return SearchIndex(tmp_path / "more", entries(tmp_path / "more"))

    made("a", same=[1, "x"], kind=1, some=1)
    index = made("b", same=[1, "x"], kind=True)
    keys = [SETTING_PREFIX + name for name in ("same", "kind", "some", "none")]
    assert [index.is_constant(key) for key in keys] == [True, False, False, False]
    assert column(index, tmp_path / "more", keys[1]) == {"a": [1], "b": [True]}
    fresh = package(tmp_path / "more", "c", values={"same": [1, "x"]}, checkpoints=False)
    session(fresh, "running")
    assert not SearchIndex(tmp_path / "more", entries(tmp_path / "more")).is_constant(keys[0])


@pytest.mark.parametrize("count", [255, 256, 70_000])
def test_as_many_different_values_as_there_are_packages(count: int) -> None:
    values = [[], *([number] for number in range(count)), [0], []]
    found = search_index._encode_column(values)
    codes = found.code_list()
    table = [[], *found.different]
    assert [table[code] for code in codes] == values
    assert len(found.codes) == len(values) * (1 if count < 256 else 2 if count < 65_536 else 4)
