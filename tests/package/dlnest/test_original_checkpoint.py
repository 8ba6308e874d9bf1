"""Checkpoints of DLNest's own programs, read without running what is in their pickles."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import CheckpointError
from roost.package.dlnest import original_checkpoint
from roost.package.dlnest.original_checkpoint import NotRead, known_step
from roost.package.dlnest.original_package import OriginalPackage
from tests.package.dlnest.original import original, state


class Writes:
    """Its pickle runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class Meter:
    def __init__(self) -> None:
        self.sum = 3


def test_tensors_and_values_of_numpy(tmp_path: Path) -> None:
    path = original(tmp_path / "old") / "Checkpoints" / "state_3.ckpt"
    info, found, not_read = original_checkpoint.read(3, path)
    expected = state(3)
    assert not_read == [] and (info.id, info.epoch, known_step(info)) == (3, 4, None)
    for name, value in expected["runner"][0].items():
        assert torch.equal(found["runner"][0][name], value)
    assert found["log_dict"]["loss"] == [1.5, 2.5] and type(found["log_dict"]["loss"][0]) is np.float32
    assert np.array_equal(found["log_dict"]["all"], np.arange(3))
    assert found["life_cycle"] == expected["life_cycle"]


def test_a_defaultdict_of_a_log_is_plain_data(tmp_path: Path) -> None:
    path = original(tmp_path / "old") / "Checkpoints" / "state_3.ckpt"
    torch.save({**state(3), "log_dict": defaultdict(list, {"loss": [1.5]})}, path)
    _, found, not_read = original_checkpoint.read(3, path)
    assert not_read == [] and found["log_dict"]["loss"] == [1.5] and found["log_dict"]["new"] == []


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_pickle_does_not_run(tmp_path: Path, legacy: bool) -> None:
    made = tmp_path / "made"
    file = tmp_path / "state_1.ckpt"
    content = state(1, dataset={"bad": Writes(made), "meter": Meter(), "f": [os.system, {}.get]})
    torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    _, found, not_read = original_checkpoint.read(1, file)
    assert not made.exists()
    assert isinstance(found["dataset"]["meter"], NotRead) and isinstance(found["dataset"]["bad"], NotRead)
    assert {"posix.mkdir", f"{Meter.__module__}.Meter", "posix.system"} <= set(not_read)
    assert found["runner"][0].keys() == state(1)["runner"][0].keys()
    _, trusted, none = original_checkpoint.read(1, file, trust=True)
    assert made.is_dir() and trusted["dataset"]["meter"].sum == 3 and none == []


def test_a_checkpoint_of_0_2(tmp_path: Path) -> None:
    path = original(tmp_path / "old")
    torch.save({"net": {"w": torch.ones(2)}, "epoch": 6}, path / "Checkpoints" / "epoch_6.ckpt")
    package = OriginalPackage.open(path)
    assert list(package.files()) == [2, 3, 6]
    info, found, _ = original_checkpoint.read(*package.file(6))
    assert info.epoch == 7 and found["model"]["net"]["w"].tolist() == [1.0, 1.0]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "state_0.ckpt"
    file.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="cannot be read"):
        original_checkpoint.read(0, file)
    torch.save([1, 2], file)
    with pytest.raises(CheckpointError, match="holds no state"):
        original_checkpoint.read(0, file)
