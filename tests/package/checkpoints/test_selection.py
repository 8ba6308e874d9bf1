"""Which checkpoints are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import CheckpointError, NotFound, UsageError
from roost.package.checkpoints import checkpoint, selection
from roost.package.checkpoints.selection import CheckpointSelection
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.operations.packages import VALUES, package


@pytest.fixture
def made(tmp_path: Path) -> PackageFolder:
    """Checkpoints 0, 1, 2 with valid/loss 1.5, 0.5, 0.75."""
    return package(tmp_path / "runs")


def ids(made: PackageFolder, what: CheckpointSelection) -> tuple[list[int], list[str]]:
    said: list[str] = []
    found = selection.load_each(made, what, lambda path: checkpoint.read_manifest(path).id, said)
    return list(found), said


def flip(made: PackageFolder, id: int, name: str = "model.json") -> None:
    file = checkpoint.checkpoint_folder(made.checkpoints, id) / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({}, [2]),
        ({"checkpoint": "last"}, [2]),
        ({"checkpoint": "1"}, [1]),
        ({"checkpoint": "best"}, [1]),
        ({"checkpoint": "best", "monitor": "valid/loss", "mode": "max"}, [0]),
        ({"average": "last:2"}, [2, 1]),
        ({"average": "best:2"}, [1, 2]),
        ({"average": "best:2", "monitor": "valid/loss", "mode": "max"}, [0, 2]),
    ],
)
def test_words(words: dict[str, str], found: list[int], made: PackageFolder) -> None:
    what = selection.parse_selection(made, words.pop("checkpoint", None), **words)
    assert ids(made, what) == (found, [])
    assert selection.from_json(selection.to_json(what)) == what


def test_one_word_for_one_checkpoint(made: PackageFolder) -> None:
    words = (None, "last", "best", "1", 1, 9)
    assert [selection.checkpoint_id(made, word) for word in words] == [None, None, 1, 1, 1, 9]
    with pytest.raises(UsageError, match="'bset'"):
        selection.checkpoint_id(made, "bset")


def test_one_word_without_a_metric_asks_for_an_id_and_no_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fix: give last, or the id"):
        selection.checkpoint_id(package(tmp_path / "runs", values={**VALUES, "checkpoint": {}}), "best")


@pytest.mark.parametrize(("mode", "found"), [(None, [1]), ("min", [0])])
def test_a_monitor_of_the_settings_brings_its_mode(
    mode: str | None, found: list[int], tmp_path: Path
) -> None:
    """Accuracies 0.25, 0.75, 0.5: the least would be the worst."""
    rules = [{"monitor": "valid/loss", "mode": "min"}, {"monitor": "valid/accuracy", "mode": "max"}]
    made = package(
        tmp_path / "runs",
        values={**VALUES, "checkpoint": {"best": rules}},
        rows=[
            {"step": n, "epoch": 0, "valid/loss": 1.0, "valid/accuracy": value}
            for n, value in enumerate([0.25, 0.75, 0.5], 1)
        ],
    )
    assert ids(made, selection.parse_selection(made, "best", monitor="valid/accuracy", mode=mode)) == (
        found,
        [],
    )


@pytest.mark.parametrize(
    ("words", "setting", "facts"),
    [
        ({"checkpoint": "bets"}, "-c", ["'best'"]),
        ({"checkpoint": "-1"}, "-c", []),
        ({"average": "best"}, "--average", []),
        ({"average": "best:0"}, "--average", []),
        ({"average": "last:-2"}, "--average", []),
        ({"average": "worst:2"}, "--average", []),
        ({"checkpoint": "1", "average": "last:2"}, None, ["-c", "--average"]),
        ({"monitor": "valid/loss"}, "--monitor", []),
        ({"average": "last:2", "mode": "max"}, "--mode", []),
    ],
)
def test_words_that_mean_nothing(
    words: dict[str, str], setting: str | None, facts: list[str], made: PackageFolder, messages: Messages
) -> None:
    with pytest.raises(UsageError) as refused:
        selection.parse_selection(made, words.pop("checkpoint", None), **words)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)


def test_more_than_there_are(made: PackageFolder, messages: Messages) -> None:
    found, said = ids(made, selection.parse_selection(made, average="last:9"))
    assert found == [2, 1, 0] and len(said) == 1
    messages.check(said[0])
    assert "last:9" in said[0] and "3" in said[0]


def test_what_is_not_there(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        selection.candidates(made, selection.parse_selection(made, "7"))
    messages.check(refused.value)
    assert "7" in refused.value.message and "0, 1, 2" in refused.value.message
    with pytest.raises(NotFound) as refused:
        selection.candidates(made, selection.parse_selection(made, "best", monitor="valid/los"))
    messages.check(refused.value)
    assert refused.value.setting == "--monitor"
    assert all(fact in str(refused.value) for fact in ("valid/los'", "'valid/loss'"))
    with pytest.raises(NotFound) as refused:
        selection.candidates(
            empty := package(tmp_path / "more", checkpoints=False), selection.parse_selection(empty)
        )
    messages.check(refused.value)
    rules = {**VALUES, "checkpoint": {}}
    with pytest.raises(UsageError) as unsaid:
        selection.parse_selection(package(tmp_path / "third", values=rules), "best")
    messages.check(unsaid.value)
    assert all(fact in str(unsaid.value) for fact in ("checkpoint.best", "--monitor"))


def test_a_damaged_one_is_passed_over_aloud_and_an_id_is_no_other(
    made: PackageFolder, messages: Messages
) -> None:
    flip(made, 2)

    def load(path: Path) -> int:
        return checkpoint.verify(path).id

    said: list[str] = []
    assert list(selection.load_each(made, selection.parse_selection(made, average="last:2"), load, said)) == [
        1,
        0,
    ]
    messages.check(said[0])
    assert len(said) == 1 and "state_2.ckpt" in said[0] and "model.json" in said[0]
    with pytest.raises(CheckpointError) as refused:
        list(selection.load_each(made, selection.parse_selection(made, "2"), load, []))
    messages.check(refused.value)
    flip(made, 0)
    flip(made, 1)
    with pytest.raises(CheckpointError) as refused:
        list(selection.load_each(made, selection.parse_selection(made), load, []))
    messages.check(refused.value)
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2], "nothing was set aside"


def test_a_damaged_manifest_may_be_the_best_and_is_named(made: PackageFolder) -> None:
    flip(made, 1, "MANIFEST.json")
    found, said = ids(made, selection.parse_selection(made, "best"))
    assert found == [2] and len(said) == 1
    assert "state_1.ckpt" in said[0] and "MANIFEST.json" in said[0]


def test_one_that_its_run_removes_meanwhile(made: PackageFolder) -> None:
    removed: list[Path] = []

    def load(path: Path) -> int:
        if not removed:
            removed.append(path)
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        return checkpoint.verify(path).id

    said: list[str] = []
    assert list(selection.load_each(made, selection.parse_selection(made), load, said)) == [1] and said == []


def test_the_manifests_are_not_read_again_for_each_damaged_one(
    made: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in range(100, 120):
        folder = checkpoint.checkpoint_folder(made.checkpoints, id)
        folder.mkdir()
        (folder / "MANIFEST.json").write_text("{")
    reads: list[Path] = []
    read = checkpoint.read_manifests
    monkeypatch.setattr(checkpoint, "read_manifests", lambda folder: reads.append(folder) or read(folder))
    notes: list[str] = []
    wanted = selection.parse_selection(made, "last")
    (found,) = selection.load_each(made, wanted, lambda path: checkpoint.read_manifest(path).id, notes)
    assert found < 100 and len(notes) == 20 and len(reads) <= 2
