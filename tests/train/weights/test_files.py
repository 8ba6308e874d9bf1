"""Files that roost did not write."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.train.weights import files

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.n": torch.tensor(3), "b": torch.tensor([True])}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "w.pt"
    torch.save(content, path)
    return path


def equal(found: Any) -> bool:
    return found.keys() == STATE.keys() and all(
        torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in STATE.items()
    )


@pytest.mark.parametrize(
    ("content", "about"),
    [
        (STATE, "a file of torch.save"),
        (OrderedDict(STATE), "a file of torch.save"),
        ({"state_dict": STATE, "epoch": 3, "optimizer": {"state": {}}}, "its entry 'state_dict'"),
        ({"model": STATE, "args": {"lr": 1.0}}, "its entry 'model'"),
        ({"model": {"state_dict": STATE}, "step": 1}, "its entry 'model.state_dict'"),
        ({"net": STATE}, "its entry 'net'"),
    ],
)
def test_where_a_state_dict_lies(tmp_path: Path, content: Any, about: str) -> None:
    path = saved(tmp_path, content)
    found = files.read(path)
    assert equal(found.weights) and found.about.endswith(about)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.size == path.stat().st_size and found.path == path


def test_the_old_format_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save(STATE, path, _use_new_zipfile_serialization=False)
    assert equal(files.read(path).weights)


def test_an_entry_inside_another(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": {"ema": STATE, "a.b": STATE}, "a.b": STATE})
    assert all(equal(files.read(path, entry=entry).weights) for entry in ("model.ema", "a.b"))
    for entry in ("model.a.b", "model.ema.a", "nope.ema"):
        with pytest.raises(CheckpointError, match="it has no entry"):
            files.read(path, entry=entry)


def test_names_that_are_no_texts(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it holds no tensors by name; its entries are "):
        files.read(saved(tmp_path, {0: torch.ones(1), 1: torch.ones(2)}))


def test_an_entry_of_what_has_none(tmp_path: Path) -> None:
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match="`entry` is for files of torch"):
        files.read(tmp_path / "w.safetensors", entry="model")


def test_of_several_entries_the_first_is_taken_aloud(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": {"other": torch.ones(1)}, "state_dict": STATE})
    found = files.read(path)
    assert equal(found.weights) and found.notes == [
        "of its entries 'state_dict', 'model' the first one is taken"
    ]


def test_an_entry_that_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, {"state_dict": {"x": torch.ones(1)}, "ema": STATE})
    assert equal(files.read(path, entry="ema").weights)
    with pytest.raises(CheckpointError, match="no entry 'emma' with tensors"):
        files.read(path, entry="emma")


@pytest.mark.parametrize("content", [{"epoch": 3, "best": {"acc": 0.5}}, [1, 2], torch.ones(2)])
def test_without_a_state_dict(tmp_path: Path, content: Any) -> None:
    with pytest.raises(CheckpointError, match="holds no tensors by name; it"):
        files.read(saved(tmp_path, content))


@pytest.mark.parametrize("name", ["w.safetensors", "w.bin"])
def test_safetensors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    safetensors.torch.save_file(
        {**STATE, "half": torch.ones(3, dtype=torch.bfloat16)}, path, {"format": "pt"}
    )
    found = files.read(path)
    assert (
        found.about == "a safetensors file" and found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    )
    half = dict(found.weights).pop("half")
    assert half.dtype == torch.bfloat16 and float(half.sum()) == 3
    assert equal({name: value for name, value in found.weights.items() if name != "half"})


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_that_is_a_program_is_refused_and_not_run(tmp_path: Path, is_new: bool) -> None:
    path = tmp_path / "w.pt"
    torch.save({"model": Bomb(tmp_path / "here")}, path, _use_new_zipfile_serialization=is_new)
    with pytest.raises(Refused, match=r"holds \w+\.mkdir, and to load that is to run code"):
        files.read(path)
    assert not (tmp_path / "here").exists()


def test_a_whole_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"holds torch\.nn\.modules\.linear\.Linear.*state_dict\(\)"):
        files.read(saved(tmp_path, nn.Linear(1, 1)))


def test_a_torchscript_archive_is_refused(tmp_path: Path) -> None:
    traced = torch.jit.trace(nn.Linear(1, 1), torch.ones(1, 1))
    traced.save(str(tmp_path / "w.pt"))
    with pytest.raises(Refused, match="TorchScript archive"):
        files.read(tmp_path / "w.pt")


def test_an_older_torch_reads_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, STATE)
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(Refused, match=r"torch 2\.9\.1.*update torch to 2\.10 or newer, or convert"):
        files.read(path)
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    assert equal(files.read(tmp_path / "w.safetensors").weights)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_file_that_is_cut_off(tmp_path: Path, keep: float) -> None:
    for path in (saved(tmp_path, STATE), tmp_path / "w.safetensors"):
        if path.suffix == ".safetensors":
            safetensors.torch.save_file(STATE, path)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
        with pytest.raises(CheckpointError):
            files.read(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "pointer of git-lfs"),
        (b"<!DOCTYPE html><html>not found</html>", "web page"),
        (b'{"weight_map": {}}', "JSON"),
        (b"\x1f\x8b\x08", "compressed"),
        (b"", "neither"),
        (b"hello", "neither"),
    ],
)
def test_what_is_no_file_of_weights(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=said):
        files.read(path)


def test_a_header_of_a_type_that_is_not_known(tmp_path: Path) -> None:
    header = b'{"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(CheckpointError, match="numbers of type F4"):
        files.read(tmp_path / "w.safetensors")


def test_what_is_not_there_or_no_plain_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        files.read(tmp_path / "w.pt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no plain file"):
        files.read(tmp_path / "pipe")
