"""The packages of a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.operations.cache_folder import cache_folder
from roost.operations.listing.list_packages import list_packages
from roost.package import labels
from tests.operations.packages import package, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def states(folder: Path) -> list[tuple[str, str]]:
    return [(row.name, row.state) for row in list_packages(folder)]


def test_lists_packages_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b", "a"):
        package(tmp_path / "runs", name)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "half" / "sessions").mkdir(parents=True)  # being made, or a start that was cut off
    (tmp_path / "runs" / "file").write_text("")
    assert states(tmp_path / "runs") == [("a", "succeeded"), ("b", "succeeded")]
    assert states(tmp_path / "runs") == [("a", "succeeded"), ("b", "succeeded")]


@pytest.mark.parametrize("name", ["runs", "Saves"])
def test_a_folder_stands_for_its_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir(exist_ok=True)  # an empty one hides no packages
    made = package(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert [row.name for row in list_packages()] == ["one"]
    assert [row.name for row in list_packages(tmp_path)] == ["one"]
    assert [row.name for row in list_packages(made.path)] == ["one"]


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    assert list_packages(tmp_path) == []
    with pytest.raises(NotFound):
        list_packages(tmp_path / "nowhere")


def test_a_package_that_is_not_yet_renamed_into_place_is_no_row(tmp_path: Path) -> None:
    package(tmp_path / "runs").path.rename(tmp_path / "runs" / ".one.tmp-0123456789ab")
    assert states(tmp_path / "runs") == []


def test_the_index_follows_what_changes(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    assert states(tmp_path / "runs") == [("one", "new")]
    number = session(made, "running")
    assert states(tmp_path / "runs") == [("one", "running")]
    session_file = made.path / "sessions" / f"{number}.json"
    ended = session_file.read_text().replace('"running"', '"stopped"')
    (made.path / "sessions" / "new").write_text(ended)
    (made.path / "sessions" / "new").rename(session_file)
    assert states(tmp_path / "runs") == [("one", "stopped")]
    shutil.rmtree(made.path)
    assert states(tmp_path / "runs") == []


def test_a_run_that_was_running_is_looked_at_again(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    assert states(tmp_path / "runs") == [("one", "running")]
    session_file = made.path / "sessions" / "1.json"
    # Overwritten in place, so that the folder's time stays: as when the process dies and nobody writes.
    session_file.write_text(session_file.read_text().replace('"start_ticks": ', '"start_ticks": 9'))
    assert states(tmp_path / "runs") == [("one", "crashed")]


def test_another_package_of_the_same_name(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    assert states(tmp_path / "runs") == [("one", "succeeded")]
    shutil.rmtree(tmp_path / "runs" / "one")
    package(tmp_path / "runs", state="failed")
    assert states(tmp_path / "runs") == [("one", "failed")]


def test_a_damaged_package_is_a_row_until_it_is_mended(tmp_path: Path) -> None:
    package(tmp_path / "runs", "good")
    derived = package(tmp_path / "runs").path / "_package.json"
    before = derived.read_bytes()
    derived.write_text('{"ckpt_best": 3}')
    assert states(tmp_path / "runs") == [("good", "succeeded"), ("one", "damaged")]
    derived.write_bytes(before)
    assert states(tmp_path / "runs") == [("good", "succeeded"), ("one", "succeeded")]


@pytest.mark.parametrize("damage", [b"", b"[]", b'[1, "/elsewhere", {}]', b"\xff"])
def test_the_index_is_a_cache(tmp_path: Path, damage: bytes) -> None:
    package(tmp_path / "runs")
    states(tmp_path / "runs")
    (index,) = (cache_folder() / "ls").iterdir()
    index.write_bytes(damage)
    assert states(tmp_path / "runs") == [("one", "succeeded")]


def test_a_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    package(tmp_path / "runs")
    assert states(tmp_path / "runs") == [("one", "succeeded")]


def test_the_index_follows_labels_that_change_within_one_tick(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for number in range(20):
        labels.add_tags(made.path, [f"tag-{number}"])
        (row,) = list_packages(tmp_path / "runs")
        assert row.tags[-1] == f"tag-{number}"
    labels.set_note(made.path, "it was\nthe sampler")
    labels.set_starred(made.path, True)
    (row,) = list_packages(tmp_path / "runs")
    assert row.starred and row.note == "it was\nthe sampler"


def test_labels_are_searched(tmp_path: Path) -> None:
    for name, tags in (("a", ["baseline", "lr"]), ("b", ["base"]), ("c", [])):
        made = package(tmp_path / "runs", name)
        labels.add_tags(made.path, tags)
    labels.set_note(made.path, "Warm-up of 10 steps")
    labels.set_starred(made.path, True)

    def found(query: str) -> list[str]:
        return [row.name for row in list_packages(tmp_path / "runs", query)]

    assert found("tag:base") == ["b"] and found("tags=lr") == ["a"]
    assert found("tag:baseline tag:lr") == ["a"] and found("tag:baseline tag:base") == []
    assert found("tag!=base") == ["a", "c"]
    assert found("note:warm-up") == ["c"] and found("starred:true") == ["c"]
    assert found("starred=false") == ["a", "b"]
