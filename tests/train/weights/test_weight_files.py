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
from roost.train.weights import weight_files
from tests.messages import Messages

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
        (STATE, "torch.save"),
        (OrderedDict(STATE), "torch.save"),
        ({"state_dict": STATE, "epoch": 3, "optimizer": {"state": {}}}, "'state_dict'"),
        ({"model": STATE, "args": {"lr": 1.0}}, "'model'"),
        ({"model": {"state_dict": STATE}, "step": 1}, "'model.state_dict'"),
        ({"net": STATE}, "'net'"),
    ],
    ids=["plain", "ordered", "entry", "model", "inside", "net"],
)
def test_where_a_state_dict_lies(tmp_path: Path, content: Any, about: str, messages: Messages) -> None:
    path = saved(tmp_path, content)
    found = weight_files.read(path)
    assert equal(found.weights) and about in found.description
    messages.check(found.description)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.size == path.stat().st_size and found.path == path


def test_the_old_format_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save(STATE, path, _use_new_zipfile_serialization=False)
    assert equal(weight_files.read(path).weights)


def test_an_entry_inside_another(tmp_path: Path, messages: Messages) -> None:
    path = saved(tmp_path, {"model": {"ema": STATE, "a.b": STATE}, "a.b": STATE})
    assert all(equal(weight_files.read(path, entry=entry).weights) for entry in ("model.ema", "a.b"))
    for entry in ("model.a.b", "model.ema.a", "nope.ema"):
        with pytest.raises(CheckpointError) as refused:
            weight_files.read(path, entry=entry)
        assert repr(entry) in str(refused.value)
        messages.check(refused.value)


def test_names_that_are_no_texts(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        weight_files.read(saved(tmp_path, {0: torch.ones(1), 1: torch.ones(2)}))
    messages.check(refused.value)


def test_an_entry_of_what_has_none(tmp_path: Path, messages: Messages) -> None:
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    with pytest.raises(UsageError) as refused:
        weight_files.read(tmp_path / "w.safetensors", entry="model")
    assert "entry" in str(refused.value)
    messages.check(refused.value)


def test_of_several_entries_the_first_is_taken_aloud(tmp_path: Path, messages: Messages) -> None:
    path = saved(tmp_path, {"model": {"other": torch.ones(1)}, "state_dict": STATE})
    found = weight_files.read(path)
    (note,) = found.notes
    assert equal(found.weights) and "'state_dict', 'model'" in note
    messages.check(note)


def test_an_entry_that_is_named(tmp_path: Path, messages: Messages) -> None:
    path = saved(tmp_path, {"state_dict": {"x": torch.ones(1)}, "ema": STATE})
    assert equal(weight_files.read(path, entry="ema").weights)
    with pytest.raises(CheckpointError) as refused:
        weight_files.read(path, entry="emma")
    assert "'emma'" in str(refused.value)
    messages.check(refused.value)


@pytest.mark.parametrize("content", [{"epoch": 3, "best": {"acc": 0.5}}, [1, 2], torch.ones(2)])
def test_without_a_state_dict(tmp_path: Path, content: Any, messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        weight_files.read(saved(tmp_path, content))
    messages.check(refused.value)


@pytest.mark.parametrize("name", ["w.safetensors", "w.bin"])
def test_safetensors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    safetensors.torch.save_file(
        {**STATE, "half": torch.ones(3, dtype=torch.bfloat16)}, path, {"format": "pt"}
    )
    found = weight_files.read(path)
    assert "safetensors" in found.description
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
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
    with pytest.raises(Refused) as refused:
        weight_files.read(path)
    assert "mkdir" in str(refused.value)
    assert not (tmp_path / "here").exists()


def test_a_whole_model_is_refused(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        weight_files.read(saved(tmp_path, nn.Linear(1, 1)))
    assert all(fact in str(refused.value) for fact in ("torch.nn.modules.linear.Linear", "state_dict()"))
    messages.check(refused.value)


def test_a_torchscript_archive_is_refused(tmp_path: Path, messages: Messages) -> None:
    traced = torch.jit.trace(nn.Linear(1, 1), torch.ones(1, 1))
    traced.save(str(tmp_path / "w.pt"))
    with pytest.raises(Refused) as refused:
        weight_files.read(tmp_path / "w.pt")
    assert "TorchScript" in str(refused.value)
    messages.check(refused.value)


def test_an_older_torch_reads_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    path = saved(tmp_path, STATE)
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(Refused) as refused:
        weight_files.read(path)
    assert all(fact in str(refused.value) for fact in ("2.9.1", "2.10"))
    messages.check(refused.value)
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    assert equal(weight_files.read(tmp_path / "w.safetensors").weights)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_file_that_is_cut_off(tmp_path: Path, keep: float) -> None:
    for path in (saved(tmp_path, STATE), tmp_path / "w.safetensors"):
        if path.suffix == ".safetensors":
            safetensors.torch.save_file(STATE, path)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
        with pytest.raises(CheckpointError):
            weight_files.read(path)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git-lfs"),
        (b"<!DOCTYPE html><html>not found</html>", ""),
        (b'{"weight_map": {}}', "JSON"),
        (b"\x1f\x8b\x08", ""),
        (b"", "safetensors"),
        (b"hello", "safetensors"),
    ],
    ids=["git-lfs", "html", "JSON", "gzip", "empty", "text"],
)
def test_what_is_no_file_of_weights(tmp_path: Path, data: bytes, fact: str, messages: Messages) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as refused:
        weight_files.read(path)
    assert fact in str(refused.value)
    messages.check(refused.value)


def test_a_header_of_a_type_that_is_not_known(tmp_path: Path, messages: Messages) -> None:
    header = b'{"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(CheckpointError) as refused:
        weight_files.read(tmp_path / "w.safetensors")
    assert "F4" in str(refused.value)
    messages.check(refused.value)


def test_what_is_not_there_or_no_plain_file(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        weight_files.read(tmp_path / "w.pt")
    assert "w.pt" in str(refused.value)
    messages.check(refused.value)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError) as no_file:
        weight_files.read(tmp_path / "pipe")
    assert "pipe" in str(no_file.value)
    messages.check(no_file.value)
