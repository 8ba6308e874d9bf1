"""DLNest's interface of a package, for a loop of the user's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.project.dlnest.save_package import SavePackage
from tests.project.dlnest import loops

TRACKS = {
    "max_ckpt_in_slow_track": 1,
    "dilation_in_slow_track": 4,
    "max_ckpt_in_fast_track": 2,
    "max_ckpt_in_consistent_track": 1,
}


def made(tmp_path: Path, **values: Any) -> SavePackage:
    package = SavePackage()
    package.giveArgs({"save_root": str(tmp_path / "Saves"), "checkpoint_args": TRACKS, "lr": 0.1, **values})
    package.saveToNewDir("run", copyFiles=False)
    return package


@pytest.mark.skipif(torch.cuda.is_available(), reason="the default device exists")
def test_without_a_gpu_the_default_device_is_refused_by_its_argument(tmp_path: Path) -> None:
    package = made(tmp_path)
    package.saveACheckpoint({"n": 1})
    with pytest.raises(Refused) as refused:
        package.getStateDict()
    assert refused.value.setting == "device" and 'device="cpu"' in str(refused.value)
    assert package.getStateDict(device="auto") == {"n": 1}


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


def test_the_three_tracks(tmp_path: Path) -> None:
    package = made(tmp_path)
    for number in range(7):
        package.saveACheckpoint({"w": torch.full((2,), float(number)), 3: number}, number == 3)
    assert checkpoint.ids(package.path / "Checkpoints") == [3, 4, 5, 6]
    derived = json.loads((package.path / "_package.json").read_text())
    assert (derived["ckpt_fast"], derived["ckpt_slow"], derived["ckpt_consistent"]) == ([5, 6], [4], [3])
    assert package.getStateDict(device="cpu")[3] == 6
    assert package.getStateDict(4, "cpu")["w"].tolist() == [4.0, 4.0]
    with pytest.raises(NotFound):
        package.getStateDict(1, "cpu")
    args = json.loads((package.path / "args.json").read_text())
    assert args["checkpoint_args"] == TRACKS and args["lr"] == 0.1 and "roost" not in args
    package._end_writing()
    assert PackageFolder.open(package.path).state == "succeeded"


def test_goes_back_and_on(tmp_path: Path) -> None:
    package = made(tmp_path, checkpoint_args={**TRACKS, "max_ckpt_in_fast_track": 9})
    for number in range(4):
        package.saveACheckpoint({"n": number})
    package._end_writing()
    again = SavePackage()
    again.initFromAnExistSavePackage(str(package.path))
    again.setCkptID(1)
    again.saveACheckpoint({"n": 100})
    assert again.getStateDict(device="cpu")["n"] == 100
    assert checkpoint.ids(package.path / "Checkpoints") == [0, 1, 2, 3, 4], "nothing is removed"
    assert [one.id for one in PackageFolder.open(package.path).store().lineage()] == [0, 1, 4]
    again._end_writing()


def test_objects_and_output_and_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    package = made(tmp_path)
    package.saveACheckpoint({"log_dict": {"loss": [np.float32(1.5)]}, "thing": Thing(5)})
    state = package.getStateDict(device="cpu")
    assert state["thing"].number == 5 and state["log_dict"]["loss"] == [1.5]
    package.saveVisualString("_desc: first try")
    assert (package.path / "_desc: first try").read_bytes() == b""
    with pytest.raises(UsageError):
        package.saveVisualString("../outside")
    with pytest.raises(Refused, match="has this file"):
        package.saveVisualString("args.json")
    with package.getOutputFile() as file:
        file.write("a line\n")
    with package.getOutputFile(1) as file:
        file.write("of a rank\n")
    assert (package.path / "_output.txt").read_text() == "a line\n"
    assert (package.path / "_output_1.txt").read_text() == "of a rank\n"
    package._end_writing()


def test_a_name_twice_keeps_both(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path)
    assert first.path != second.path and first.path.name == "run"
    with pytest.raises(UsageError):
        first.saveToNewDir("../run", copyFiles=False)
    with pytest.raises(ConfigError, match="is missing"):
        first.saveToNewDir("copied")


def test_what_needs_a_config_or_a_package() -> None:
    package = SavePackage()
    with pytest.raises(Refused, match="no config"):
        package.saveToNewDir()
    with pytest.raises(Refused, match="no package"):
        package.saveACheckpoint({})
    with pytest.raises(ConfigError):
        package.giveArgs({"save_root": "x", "checkpoint_args": {"max_ckpt_in_fast_track": -1}})


def test_a_project_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    child = tmp_path / "more.json"
    child.write_text(json.dumps({"save_root": str(tmp_path / "Saves"), "epochs": 77}))
    package = SavePackage(str(loops.PROJECT / "root_config.json"), str(child))
    package.saveToNewDir()
    assert (package.path / "Model" / "Runner.py").is_file()
    package.saveACheckpoint({"runner": {}, "log_dict": {"acc": [0.5]}})
    assert package.getStateDict(device="cpu")["log_dict"] == {"acc": [0.5]}
    assert json.loads((package.path / "args.json").read_text())["epochs"] == 77
    package._end_writing()
    os.chdir(tmp_path)


def test_a_trained_package_is_read_and_not_written(tmp_path: Path) -> None:
    trained = loops.package(tmp_path, epochs=1)
    loops.run(trained)
    package = SavePackage()
    package.initFromAnExistSavePackage(str(trained.path))
    assert len(package.getStateDict(device="cpu")["log_dict"]["acc"]) == 1
    with pytest.raises(Refused, match="trainer"):
        package.saveACheckpoint({"runner": {}})
    package._end_writing()
