"""Tasks and sweeps by the texts that users type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import STOP
from tests.lab.queued import task
from tests.messages import Messages


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def test_by_id_prefix_name_or_package(
    store: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = task(id="01abcd", name="resnet", package=str(tmp_path / "runs" / "resnet"))
    one, _ = store.submit([one, task(id="01abxx", name="vit")])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    texts = ["01abcd", "01ABCD", "01abc", "01ABC", " resnet ", "runs/resnet", "./runs/resnet/", "link/resnet"]
    for text in [*texts, str(tmp_path / "runs" / "resnet")]:
        assert store.find(text) == one, text
    command = task(id="02", name="sh -c true", package=str(tmp_path / "runs" / "2026-11-22"))
    (command,) = store.submit([command])
    assert store.find("2026-11-22") == command, "by its folder, which is not its name"
    with pytest.raises(NotFound):
        store.find("11-22")


def test_a_label_names_a_task_of_its_kind(store: QueueStore) -> None:
    reads = {"kind": "analyze", "package": "/runs/one", "session_folder": "/runs/one/analyzers/1"}
    train, analyzer, named = store.submit(
        [
            task(name="one", package="/runs/one"),
            task(name="one/analyzers/1", **reads),
            task(name="A_2", kind="command"),
        ]
    )
    assert [one.label for one in (train, analyzer, named)] == ["T_1", "A_2", "C_3"]
    assert store.find("T_1") == train and store.find("C_3") == named
    assert store.find("A_2") == analyzer and store.find_all("A_2") == [analyzer], "a label goes before a name"
    assert store.find("one") == store.find("/runs/one") == train, "a reader has no name of its package"
    assert store.find("/runs/one/analyzers/1") == store.find("one/analyzers/1") == analyzer
    for wrong in ("a_2", "A_02", "A_9", "X_2", "A_", "T_99999999999999999999"):
        with pytest.raises(NotFound):
            store.find(wrong)
    with pytest.raises(NotFound, match="A_2"):
        store.find("T_2")


def test_a_label_is_no_beginning_of_an_id_and_no_folder_and_of_its_own_lab(
    store: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "A_2").mkdir()
    reads = {"kind": "analyze", "package": "/runs/one", "session_folder": "/runs/one/analyzers/1"}
    folder = {"id": "01a2", "name": "other", "package": str(tmp_path / "A_2")}
    trained, analyzer = store.submit([task(**folder), task(id="01a1", **reads)])
    assert store.find("A_2") == analyzer and store.find("./A_2") == trained
    assert store.find_all("A_2") == [analyzer]
    for wrong in ("A_1", "a_1", "A1", "A_2 A_2", "A_2/", "A_+2", "A_２", "A_2\0"):
        if wrong != "A_2/":
            with pytest.raises(NotFound):
                store.find(wrong)
    assert store.find("A_2/") == trained, "a path"
    with QueueStore.open(tmp_path / "other lab") as other:
        (theirs,) = other.submit(
            [task(id="01a3", kind="analyze", package="/x", session_folder="/x/analyzers/1")]
        )
        assert theirs.label == "A_1" and other.find("A_1") == theirs
        for strange in ("A_2", analyzer.id):
            with pytest.raises(NotFound):
                other.find(strange)
    with pytest.raises(NotFound):
        store.find(theirs.label)


def test_the_whole_id_goes_before_a_name_and_that_before_a_beginning(store: QueueStore) -> None:
    store.submit([task(id="01a", name="x"), task(id="01ab", name="01a"), task(id="07", name="01ab")])
    assert store.find("01a").id == "01a"
    assert store.find("x").id == "01a"
    assert store.find("01ab").id == "01ab"
    store.submit([task(id="0"), task(id="z9", name="07x"), task(id="07xx")])
    assert store.find("07x").id == "z9"


def test_an_unknown_task_is_reported_with_suggestions(store: QueueStore, messages: Messages) -> None:
    store.submit([task(name="resnet")])
    with pytest.raises(NotFound) as refused:
        store.find("resnte")
    assert all(fact in str(refused.value) for fact in ("'resnte'", "'resnet'", "roost tasks"))
    messages.check(refused.value)
    for text in ("", " ", "%", "_", "\udcff", "'; DROP TABLE task", "~nobody", "a\0b"):
        with pytest.raises(NotFound):
            store.find(text)


def test_several_are_listed_but_not_all(store: QueueStore, messages: Messages) -> None:
    store.submit([task(id=f"01{n:02d}", name="same") for n in range(12)])
    with pytest.raises(UsageError, match=r"12 .* 0111 .*pending.* 2 ") as refused:
        store.find("same")
    messages.check(refused.value)
    with pytest.raises(UsageError, match=r"10 .*0100 .same, pending."):
        store.find("010")


def test_one_that_has_not_ended_goes_before_those_that_have(store: QueueStore) -> None:
    store.submit([task(id=id, name="same") for id in "abc"])
    store.request_stop("a", STOP)
    store.request_stop("c", STOP)
    assert store.find("same").id == "b"
    store.request_stop("b", STOP)
    with pytest.raises(UsageError, match=r"^3 "):
        store.find("same")


def test_of_one_packages_ended_tasks_it_is_the_newest(store: QueueStore) -> None:
    store.submit([task(id=id, name="run", package="/runs/run") for id in "ab"])
    with pytest.raises(UsageError, match=r"^2 "):
        store.find("/runs/run")
    for id in "ab":
        store.request_stop(id, STOP)
    assert store.find("/runs/run").id == "b"


def test_a_sweep_by_its_id_or_the_beginning_of_it(store: QueueStore) -> None:
    tasks = [task(id=f"01ab{number}", name=f"s{number}", sweep="01aa") for number in range(3)]
    store.submit([*tasks, task(id="02cd", name="alone")])
    for text in ("01aa", "01AA", " 01aa "):
        assert [one.id for one in store.find_all(text)] == [one.id for one in tasks], text
    for text in ("01ab2", "s2"):
        assert [one.id for one in store.find_all(text)] == ["01ab2"], text
    assert [one.id for one in store.find_all("02")] == ["02cd"]
    with pytest.raises(NotFound):
        store.find_all("")


def test_an_ambiguous_text_is_refused(store: QueueStore, messages: Messages) -> None:
    store.submit([task(id="01ab", sweep="01aa"), task(id="03", name="n", sweep="04a"), task(sweep="04b")])
    with pytest.raises(UsageError, match=r"^2 .*01aa.*, 01ab") as refused:
        store.find_all("01a")
    messages.check(refused.value)
    with pytest.raises(UsageError, match=r"04a.*04b"):
        store.find_all("04")
    store.submit([task(id="05", name="01aa")])
    assert [one.id for one in store.find_all("01aa")] == ["05"]  # what is typed in full goes before


def test_unique_prefixes(store: QueueStore) -> None:
    ids = ["0123456789", "012345678a", "0123456xyz", "7"]
    store.submit([task(id=id, sweep="0123456789ab") for id in ids])
    expected = dict(zip(ids, ["0123456789", "012345678a", "0123456x", "7"], strict=True))
    assert store.unique_prefixes(ids) == expected
    assert store.unique_prefixes(["0123456789ab"]) == {"0123456789ab": "0123456789a"}
    for id in ids:
        assert store.find(expected[id]).id == id


def test_a_sweep_by_the_common_beginning_of_its_tasks_names(store: QueueStore) -> None:
    def sweep(id: str, *names: str) -> None:
        store.submit([task(name=name, sweep=id) for name in names])

    sweep("7one", *(f"try_lr-{lr}_seed-{seed}" for lr in ("1e-3", "2") for seed in (10, 11)))
    sweep("7two", "seed-0", "seed-1")
    store.submit([task(name="tr")])
    for text in ("try", "try_lr", "try_lr-…", "try_lr-"):
        assert len(store.find_all(text)) == 4, text
    for text in ("seed", "seed-", "seed-…"):
        assert len(store.find_all(text)) == 2, text
    assert [one.name for one in store.find_all("tr")] == ["tr"]
    for text in ("t", "try_lr-1e-3", "try_seed", "lr", "…", "s"):  # none, or a part of one
        with pytest.raises(NotFound):
            store.find_all(text)
    sweep("8two", "seed-0", "seed-2")
    with pytest.raises(UsageError, match=r"7two.*8two"):
        store.find_all("seed")
    for one in store.tasks(sweeps=["7two"]):
        store.request_stop(one.id, STOP)
    assert {one.sweep for one in store.find_all("seed")} == {"8two"}


def test_a_sweep_by_its_name(store: QueueStore) -> None:
    def sweep(id: str, name: str) -> list[str]:
        tasks = [task(name=f"{name}_lr-{number}", sweep=id, sweep_name=name) for number in range(2)]
        store.submit(tasks)
        return [one.id for one in tasks]

    grid, large = sweep("7one", "grid"), sweep("7two", "grid_large")
    for text, ids in (("grid", grid), (" grid ", grid), ("grid_large", large), ("grid_large_lr", large)):
        assert [one.id for one in store.find_all(text)] == ids, text
    assert [one.id for one in store.find_all("grid_lr-1")] == grid[1:]
    again = sweep("7three", "grid")
    with pytest.raises(UsageError, match=r"7one.*7three"):
        store.find_all("grid")
    for id in grid:
        store.request_stop(id, STOP)
    assert [one.id for one in store.find_all("grid")] == again, "of one name what goes on"


def test_a_sweep_and_a_task_of_one_name(store: QueueStore) -> None:
    alone = task(name="grid", package="/runs/grid")
    tasks = [task(name=f"grid_lr-{number}", sweep="7one", sweep_name="grid") for number in range(2)]
    store.submit([alone, *tasks])
    with pytest.raises(UsageError, match=f"7one.*{alone.id}"):
        store.find_all("grid")
    assert [one.id for one in store.find_all("/runs/grid")] == [alone.id]
    store.request_stop(alone.id, STOP)
    assert [one.id for one in store.find_all("grid")] == [one.id for one in tasks]
    for one in tasks:
        store.request_stop(one.id, STOP)
    store.submit([again := task(name="grid")])
    assert [one.id for one in store.find_all("grid")] == [again.id]
