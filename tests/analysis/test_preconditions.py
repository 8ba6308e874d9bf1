"""What is looked at before an analysis; what other programs wrote is named and never opened."""

from __future__ import annotations

import json
import os
import pickle  # what a foreign file may be
import zipfile
from pathlib import Path

import pytest
import torch

from roost.analysis import preconditions
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.config import layers
from roost.package.checkpoints import checkpoint
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import package


def torch_file(path: Path) -> Path:
    torch.save({"w": torch.zeros(3)}, path)
    return path


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_kinds(tmp_path: Path, messages: Messages) -> None:
    found = [preconditions.describe_file(torch_file(tmp_path / "a.pt"))]
    torch.save({"w": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    found.append(preconditions.describe_file(tmp_path / "old.pt"))
    assert ["torch.save" in kind for kind in found] == [True, False] and all(
        "pickle" in kind for kind in found
    )
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("x", "y")
    found.append(preconditions.describe_file(tmp_path / "x.zip"))
    (tmp_path / "x.txt").write_text("hello")
    found.append(preconditions.describe_file(tmp_path / "x.txt"))
    found.append(preconditions.describe_file(tmp_path / "nowhere"))
    assert preconditions.describe_file(tmp_path) == found[-1] and len(set(found)) == 5
    messages.check("\n".join(found))


def test_a_file_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(Refused, match="pickle") as refused:
        preconditions.open_with_runner(tmp_path / "model.pt")
    messages.check(refused.value)
    assert not (tmp_path / "unpickled").exists()


@pytest.fixture
def made(tmp_path: Path) -> PackageFolder:
    return package(tmp_path / "runs")


def replace(made: PackageFolder, id: int) -> None:
    path = checkpoint.checkpoint_folder(made.checkpoints, id)
    path.rename(made.path / f"was-{id}")
    torch_file(path)


def test_good_ones(made: PackageFolder, messages: Messages) -> None:
    assert preconditions.check_checkpoints(made, None) == preconditions.check_checkpoints(made, 1) == []
    with pytest.raises(NotFound, match=r"checkpoint 7.* 0, 1, 2") as refused:
        preconditions.check_checkpoints(made, 7)
    messages.check(refused.value)


def test_a_foreign_one_among_good_ones_is_reported(made: PackageFolder, messages: Messages) -> None:
    replace(made, 2)
    (said,) = preconditions.check_checkpoints(made, None)
    assert said.startswith("state_2.ckpt ") and "torch.save" in said
    messages.check(said)
    assert preconditions.check_checkpoints(made, 0) == []
    with pytest.raises(CheckpointError, match=r"state_2\.ckpt .* 0, 1") as refused:
        preconditions.check_checkpoints(made, 2)
    messages.check(refused.value)


def test_nothing_but_foreign_ones(made: PackageFolder, messages: Messages) -> None:
    for id in range(3):
        replace(made, id)
    for asked in (None, 7):
        with pytest.raises(CheckpointError, match=r"state_0\.ckpt .*state_2\.ckpt ") as refused:
            preconditions.check_checkpoints(made, asked)
        messages.check(refused.value)


def test_none_at_all(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    for id in (None, 3):
        with pytest.raises(NotFound, match="--untrained") as refused:
            preconditions.check_checkpoints(made, id)
        messages.check(refused.value)
    (made.checkpoints / "state_4.ckpt.corrupt").mkdir()
    with pytest.raises(NotFound, match=r"state_4\.ckpt\.corrupt") as refused:
        preconditions.check_checkpoints(made, None)
    messages.check(refused.value)
    (made.checkpoints / "state_4.ckpt.corrupt").rmdir()
    made.checkpoints.rmdir()
    with pytest.raises(NotFound, match="--untrained") as refused:
        preconditions.check_checkpoints(made, None)
    messages.check(refused.value)


def test_what_is_no_package_to_analyse(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert preconditions.open_with_runner(str(made.path)).path == made.path
    (made.path / "request.json").unlink()
    with pytest.raises(NotFound, match=r"request\.json|one") as refused:
        preconditions.open_with_runner(made.path)
    messages.check(refused.value)
    with pytest.raises(NotFound, match="nowhere") as refused:
        preconditions.open_with_runner(tmp_path / "nowhere")
    messages.check(refused.value)
    data = package(tmp_path / "runs", "data", values={"mine": 1})
    with pytest.raises(Refused, match=r"Runner.*run\.load\(\)") as refused:
        preconditions.open_with_runner(data.path)
    messages.check(refused.value)


def test_the_project(
    made: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert preconditions.project_folder(made, None) == made.project
    assert preconditions.project_folder(made, "~") == tmp_path.resolve()
    with pytest.raises(NotFound, match="'~/gone'") as refused:
        preconditions.project_folder(made, "~/gone")
    assert refused.value.setting == "--project"
    messages.check(refused.value)


def test_without_weights_there_is_nothing_to_look_for(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    assert preconditions.check_checkpoints(made, None, untrained=True) == []
    with pytest.raises(UsageError, match=r"untrained.* 99") as refused:
        preconditions.check_checkpoints(made, 99, untrained=True)
    messages.check(refused.value)


def test_a_package_of_dlnest_is_opened_to_read(tmp_path: Path) -> None:
    """As DLNest 0.3.2 writes it: no request.json, and pickles in Checkpoints."""
    made = tmp_path / "2022-02-18_10-00-00_481"
    (made / "Checkpoints").mkdir(parents=True)
    torch.save({"runner": {0: {}}, "finished_epoch": 1}, made / "Checkpoints" / "state_0.ckpt")
    tracks = {"ckpt_slow": [0], "ckpt_fast": [0], "ckpt_consistent": [], "prefix": "state_"}
    (made / "_package.json").write_text(json.dumps(tracks))
    settings = {"runner_file_path": "./Model/Runner.py", "runner_name": "Runner", "save_root": str(tmp_path)}
    (made / "args.json").write_text(json.dumps(settings))
    (made / "_package.json").write_text(json.dumps({**tracks, "ckpt_fast": [9]}))
    package = preconditions.open_with_runner(made)
    assert isinstance(package, OriginalPackage)
    (said,) = preconditions.check_checkpoints(package, None)
    assert said.endswith(": 9")
    with pytest.raises(NotFound, match="there are: 0"):
        preconditions.check_checkpoints(package, 9)
    with pytest.raises(Refused, match="no predict"):
        preconditions.require_native(package, cause="has no predict()", fix="write a script")


def test_only_a_creation_that_was_interrupted_is_to_be_run_again(
    tmp_path: Path, made: PackageFolder, messages: Messages
) -> None:
    """With rows or checkpoints in it, a folder without request.json is one that lost it."""
    (made.path / "request.json").unlink()
    with pytest.raises(NotFound, match="copy of the package") as lost:
        preconditions.open_with_runner(made.path)
    messages.check(lost.value)
    new = package(tmp_path / "runs", "new", state="new")
    (new.path / "request.json").unlink()
    with pytest.raises(NotFound, match="interrupted") as interrupted:
        preconditions.open_with_runner(new.path)
    messages.check(interrupted.value)


def test_a_package_of_dlnests_contract_without_its_request_is_one_of_roost(tmp_path: Path) -> None:
    made = prepare_training(layers.load(dlnest_project(tmp_path / "p"))).create("one")
    assert preconditions.open_with_runner(made.path).path == made.path
    (made.path / "request.json").unlink()
    with pytest.raises(NotFound, match="interrupted"):
        preconditions.open_with_runner(made.path)
