"""Which packages the words of a command line name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import STOP
from roost.operations.listing.named_packages import select_packages, split_words
from tests.lab import queued
from tests.messages import Messages
from tests.operations.packages import VALUES, package


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a1", "a2", "b1")):
        package(tmp_path / "runs", name, values={**VALUES, "width": number}, checkpoints=False)
    package(tmp_path / "other", "c1", checkpoints=False)
    return tmp_path / "runs"


def names(*words: str) -> list[str]:
    return [path.name for path in select_packages(words)]


def test_paths_names_and_folders_each_once() -> None:
    assert names("runs/a1", "b1", "other") == ["a1", "b1", "c1"]
    assert names("runs/a1", "./runs/a1", "a2", "a2") == ["a1", "a2"]
    assert names("runs") == ["a1", "a2", "b1"]


def test_patterns_of_paths_and_of_names(folder: Path) -> None:
    assert names("runs/a*") == names("a?") == names(str(folder / "a[12]")) == ["a1", "a2"]
    assert names("*/?1") == ["c1", "a1", "b1"]


def test_a_name_that_looks_like_a_query(folder: Path) -> None:
    package(folder, "width=2 seed:1", checkpoints=False)
    assert names("width=2 seed:1") == names("runs/width=2 seed:1") == ["width=2 seed:1"]
    assert names("width=2") == ["b1"]


def test_queries_with_and_without_folders() -> None:
    assert names("width>0") == ["a2", "b1"]
    assert names("runs", "width<2", "sort:-width") == ["a2", "a1"]


def test_a_task_and_a_sweep(folder: Path, tmp_path: Path) -> None:
    with QueueStore.open(tmp_path / "state" / "lab") as store:
        tasks = [
            queued.task(package=str(folder / name), name=name, sweep="7sweep", sweep_name="try")
            for name in ("b1", "a1")
        ]
        store.submit(tasks)
        for task in tasks:
            store.request_stop(task.id, STOP)
    assert names("try") == ["b1", "a1"] and names(tasks[1].id) == ["a1"]
    shutil.rmtree(folder / "b1")
    assert names("try") == ["a1"]
    shutil.rmtree(folder / "a1")
    with pytest.raises(NotFound, match="removed"):
        names("try")


def test_a_sweep_names_those_that_were_not_removed(folder: Path, tmp_path: Path, messages: Messages) -> None:
    with QueueStore.open(tmp_path / "state" / "lab") as store:
        for name in ("b1", "a1", "a2"):
            each = {"package": str(folder / name), "name": name, "state": "succeeded"}
            store.restore([queued.task(**each, sweep="7sweep", sweep_name="try")])
    shutil.rmtree(folder / "a1")
    assert names("try") == ["b1", "a2"]
    for name in ("b1", "a2"):
        shutil.rmtree(folder / name)
    with pytest.raises(NotFound) as error:
        select_packages(["try"])
    messages.check(str(error.value))


@pytest.mark.parametrize("words", [["nothing"], ["x*"], ["width>9"], ["empty"]])
def test_what_names_nothing(words: list[str], tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound) as error:
        select_packages(words)
    messages.check(str(error.value))
    with pytest.raises(UsageError):
        select_packages(["widht>1"])


@pytest.mark.parametrize("words", [[""], [" "], ["a1", ""], ["", "width>0"], ["runs", "\n"]])
def test_an_empty_word_is_not_the_current_folder(words: list[str]) -> None:
    with pytest.raises(UsageError, match="a word is empty"):
        select_packages(words)


def test_the_home_of_a_user_who_does_not_exist() -> None:
    with pytest.raises(NotFound):
        select_packages(["~no-such-user/a"])


def test_folders_come_first(tmp_path: Path) -> None:
    assert split_words(["runs", "other", "a", "runs"]) == ([Path("runs"), Path("other")], "a runs")
    assert split_words(["./nowhere", "a<1"]) == ([Path("nowhere")], "a<1")
    assert split_words([]) == ([], "") and split_words(["lr=/x"]) == ([], "lr=/x")
