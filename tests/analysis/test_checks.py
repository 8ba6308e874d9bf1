"""What is looked at before an analysis; what other programs wrote is named and never opened."""

from __future__ import annotations

import os
import pickle  # what a foreign file may be
import zipfile
from pathlib import Path

import pytest
import torch

from roost.analysis import checks
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.package import checkpoint
from roost.package.package import Package
from tests.operations.packages import package


def torch_file(path: Path) -> Path:
    torch.save({"w": torch.zeros(3)}, path)
    return path


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_kinds(tmp_path: Path) -> None:
    assert checks.kind(torch_file(tmp_path / "a.pt")) == "a pickle that torch.save wrote"
    torch.save({"w": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert checks.kind(tmp_path / "old.pt") == "a pickle"
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("x", "y")
    assert checks.kind(tmp_path / "x.zip") == "an archive"
    (tmp_path / "x.txt").write_text("hello")
    assert checks.kind(tmp_path / "x.txt") == "a file"
    assert checks.kind(tmp_path / "nowhere") == checks.kind(tmp_path) == "no plain file"


def test_a_file_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(Refused, match=r"is a pickle, no package; roost does not unpickle"):
        checks.opened(tmp_path / "model.pt")
    assert not (tmp_path / "unpickled").exists()


@pytest.fixture
def made(tmp_path: Path) -> Package:
    return package(tmp_path / "runs")


def replace(made: Package, id: int) -> None:
    path = checkpoint.folder_of(made.checkpoints, id)
    path.rename(made.path / f"was-{id}")
    torch_file(path)


def test_good_ones(made: Package) -> None:
    assert checks.check_checkpoints(made, None) == checks.check_checkpoints(made, 1) == []
    with pytest.raises(NotFound, match="there is no checkpoint 7; there are: 0, 1, 2"):
        checks.check_checkpoints(made, 7)


def test_a_foreign_one_among_good_ones_is_told(made: Package) -> None:
    replace(made, 2)
    (said,) = checks.check_checkpoints(made, None)
    assert said == "state_2.ckpt is a pickle that torch.save wrote, which roost does not unpickle"
    assert checks.check_checkpoints(made, 0) == []
    with pytest.raises(CheckpointError, match=r"state_2.ckpt is a pickle .*another checkpoint: 0, 1"):
        checks.check_checkpoints(made, 2)


def test_nothing_but_foreign_ones(made: Package) -> None:
    for id in range(3):
        replace(made, id)
    for asked in (None, 7):
        with pytest.raises(CheckpointError, match=r"state_0\.ckpt is a pickle .*state_2\.ckpt is a pickle"):
            checks.check_checkpoints(made, asked)


def test_none_at_all(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    for id in (None, 3):
        with pytest.raises(NotFound, match=r"has saved nothing yet.*--untrained"):
            checks.check_checkpoints(made, id)
    (made.checkpoints / "state_4.ckpt.corrupt").mkdir()
    with pytest.raises(NotFound, match=r"all were damaged \(state_4.ckpt.corrupt\)"):
        checks.check_checkpoints(made, None)
    (made.checkpoints / "state_4.ckpt.corrupt").rmdir()
    made.checkpoints.rmdir()
    with pytest.raises(NotFound, match="has saved nothing yet"):
        checks.check_checkpoints(made, None)


def test_what_is_no_package_to_analyse(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert checks.opened(str(made.path)).path == made.path
    (made.path / "request.json").unlink()
    with pytest.raises(NotFound, match="half-written"):
        checks.opened(made.path)
    with pytest.raises(NotFound, match="there is no such folder"):
        checks.opened(tmp_path / "nowhere")
    data = package(tmp_path / "runs", "data", values={"mine": 1})
    with pytest.raises(Refused, match=r"names no Runner: .*run\.load\(\)"):
        checks.opened(data.path)


def test_the_project(made: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert checks.project_of(made, None) == made.project
    assert checks.project_of(made, "~") == tmp_path.resolve()
    with pytest.raises(NotFound, match=r"project: there is no such folder; received '~/gone'"):
        checks.project_of(made, "~/gone")


def test_without_weights_there_is_nothing_to_look_for(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    assert checks.check_checkpoints(made, None, untrained=True) == []
    with pytest.raises(UsageError, match="untrained takes no checkpoint; received 99"):
        checks.check_checkpoints(made, 99, untrained=True)
