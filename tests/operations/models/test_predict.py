"""Predicting: what is refused before anything is started, and one for real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.operations.models.predict import PredictOutcome, PredictRequest, predict
from roost.operations.reading.show import show
from roost.operations.sessions.running_session import follow
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.sessions import Session
from tests.messages import Messages
from tests.operations.models.worker_cut import cut_worker
from tests.operations.packages import package
from tests.project.predicting import predicting


def predicted(made: PackageFolder, **asked: Any) -> PredictOutcome:
    request = PredictRequest(package=made.path, **{"source": "valid", "device": "cpu", **asked})
    with predict(request) as started:
        *_, ended = follow(started.running)
        assert isinstance(ended, Session)
        found = started.outcome(ended)
        if found.state == "succeeded":
            assert started.stage().startswith("40 ") and "100%" in started.stage()
        assert started.process.wait(100) == ended.recorded.exit_code
    return found


def test_one_that_show_lists_and_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    made = predicting(tmp_path)
    moved = PackageFolder(tmp_path / "moved")
    made.path.rename(moved.path)
    monkeypatch.chdir(tmp_path)
    lock = moved.lock()  # it takes none
    found = predicted(moved, command=["roost", "predict"])
    place = moved.path / predictions.NAME / "1"
    assert (found.state, found.exit_code, found.folder) == ("succeeded", 0, str(place)), found
    assert found.meta is not None and found.meta.count == 40
    assert found.meta == predictions.read(place)
    (shown,) = show(moved.path).predictions
    assert (shown.number, shown.source, shown.checkpoint, shown.samples) == (1, "valid", 2, 40)
    assert shown.values == ["score", "label", "features"] and shown.folder == str(place)
    found = predicted(moved, source="tets", out=Path("here"))
    assert (found.state, found.exit_code, found.folder, found.meta) == ("failed", 3, None, None)
    assert found.error is not None and "'tets'" in found.error and "train, valid" in found.error
    messages.check(found.error)
    assert [path.name for path in (moved.path / predictions.NAME).iterdir()] == ["1"]
    assert not (tmp_path / "here").exists() and not list(tmp_path.glob(".roost*"))

    os.close(lock)


@pytest.mark.parametrize(
    ("asked", "error", "setting", "fact"),
    [
        ({"limit": 0}, UsageError, "--limit", " 0"),
        ({"batch_size": 0}, UsageError, "--batch-size", " 0"),
        ({"num_workers": -1}, UsageError, "--num-workers", " -1"),
        ({"checkpoint": "9"}, NotFound, None, "0, 1, 2"),
        ({"checkpoint": "newest"}, UsageError, "-c", "'newest'"),
        ({"project": Path("nowhere")}, NotFound, "--project", "'nowhere'"),
        ({"out": Path("taken")}, Refused, "-o", "taken"),
        ({"out": Path("runs/one/mine")}, Refused, None, "runs/one/mine"),
        ({"out": Path("file/mine")}, Refused, None, "-o DIR"),
        ({"package": Path("file")}, Refused, "PACKAGE", "'file'"),
        ({"package": Path("nowhere")}, NotFound, None, "'nowhere'"),
    ],
)
def test_what_is_refused_at_once(
    asked: dict[str, Any],
    error: type[RoostError],
    setting: str | None,
    fact: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: Messages,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = package(tmp_path / "runs")
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    request = PredictRequest(**{"package": made.path, "source": "valid", "device": "cpu", **asked})
    with pytest.raises(error) as refused, predict(request):
        raise AssertionError("it began")
    assert refused.value.setting == setting and fact in str(refused.value)
    messages.check(refused.value)
    assert not (made.path / predictions.NAME).exists() and list((tmp_path / "taken").iterdir()) == []


def test_predictions_that_are_stored_are_a_success_also_if_the_worker_is_killed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = predicting(tmp_path)
    cut_worker(monkeypatch, tmp_path / "site", made.path / predictions.NAME, is_killed=True)
    found = predicted(made)
    place = made.path / predictions.NAME / "1"
    assert (found.state, found.exit_code, found.folder, found.error) == ("succeeded", 0, str(place), None)
    assert found.meta == predictions.read(place) and found.meta is not None
    assert "SIGKILL" in found.notes[-1]


def test_predictions_whose_folder_the_disk_refuses_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = predicting(tmp_path)
    cut_worker(monkeypatch, tmp_path / "site", made.path / predictions.NAME, is_killed=False)
    found = predicted(made)
    assert (found.state, found.exit_code, found.folder, found.meta) == ("failed", 1, None, None)
    assert predictions.read_all(made) == []
