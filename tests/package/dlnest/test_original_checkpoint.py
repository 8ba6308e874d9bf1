"""Checkpoints of DLNest's own programs, read without running what is in their pickles."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections import Counter, defaultdict
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


class Program(torch.nn.Module):
    """TorchScript runs its `__setstate__` when it is loaded, which makes a file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.training, self.file, self.sum = False, file, 0.0

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.file, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.file, self.training = state
        self.sum = float(torch.from_file(self.file, True, 4).fill_(7.0).sum())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore")  # torch's own, of TorchScript
@pytest.mark.parametrize("trust", [False, True])
def test_a_program_of_torchscript_is_not_begun(tmp_path: Path, trust: bool) -> None:
    made, file = tmp_path / "made", tmp_path / "state_1.ckpt"
    torch.jit.save(torch.jit.script(Program(str(made))), str(file))
    torch.jit.load(str(file))
    assert made.exists()  # the program does what it is to do
    made.unlink()
    with pytest.raises(CheckpointError, match="TorchScript archive, which is a program"):
        original_checkpoint.read(1, file, trust=trust)
    assert not made.exists()


def test_a_tar_archive_is_not_extracted(tmp_path: Path) -> None:
    file = tmp_path / "state_1.ckpt"
    with tarfile.open(file, "w") as archive:
        link = tarfile.TarInfo("storages")
        link.type, link.linkname = tarfile.SYMTYPE, "/dev/zero"
        archive.addfile(link)
    with pytest.raises(CheckpointError, match="is a tar archive"):
        original_checkpoint.read(1, file)


@pytest.mark.parametrize(
    "name", ["torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections Counter"]
)
def test_a_pickle_cannot_change_what_it_names(tmp_path: Path, name: str) -> None:
    """An older file may have the source of a class, which torch.load compares with the present one: then it
    writes a patch, by attributes that the pickle could set."""
    named = b"c" + b"\n".join(name.encode().split()) + b"\n"
    changed = pickle.dumps((None, {"dump_patches": True, "__name__": str(tmp_path / "made")}), 2)[2:-1]
    source = b"(" + b"".join([_text("module"), named, _text("file.py"), _text("evil")]) + b"tQ0"
    stream = io.BytesIO()
    for value in (torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}):
        pickle.dump(value, stream, 2)
    stream.write(b"\x80\x02" + named + changed + b"b0" + source + b"}.")
    pickle.dump([], stream, 2)
    (tmp_path / "state_1.ckpt").write_bytes(stream.getvalue())
    with pytest.raises(CheckpointError, match="invalid partial state"):
        original_checkpoint.read(1, tmp_path / "state_1.ckpt")
    assert [one.name for one in tmp_path.iterdir()] == ["state_1.ckpt"]
    assert not any(hasattr(one, "dump_patches") for one in (Counter, *vars(torch._utils).values()))


def _text(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def test_plain_data_of_other_classes(tmp_path: Path) -> None:
    saved = state(1, dataset={"count": Counter("aab"), "dtype": torch.float16, "p": torch.nn.Parameter()})
    torch.save(saved, tmp_path / "state_1.ckpt")
    _, found, not_read = original_checkpoint.read(1, tmp_path / "state_1.ckpt")
    assert not_read == [] and found["dataset"]["count"] == Counter("aab")
    assert found["dataset"]["dtype"] is torch.float16
