"""The process that writes weights into a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

from roost.analysis import analysis_folder
from roost.base import durable
from roost.base.errors import NotFound, Refused, UsageError
from roost.package import sessions
from roost.package.checkpoints import checkpoint, selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.worker.results import export_task
from tests.messages import Messages
from tests.operations.packages import package

TIED = torch.arange(6.0).reshape(2, 3)
STATE = {
    "net.in.weight": TIED,
    "net.norm.count": torch.tensor(7),
    "net.half": torch.arange(4).to(torch.bfloat16),
    "net.last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "net.empty": torch.zeros(0, 3),
    "out.weight": TIED,
}


@pytest.fixture
def made(tmp_path: Path) -> PackageFolder:
    found = package(tmp_path / "runs", checkpoints=False)
    add(found, 0, STATE)
    return found


def add(made: PackageFolder, id: int, state: dict[str, Any]) -> None:
    info = Manifest(id=id, step=id * 10, epoch=id, batch=0, line=[(0, id)], metrics={"valid/loss": 1.0 - id})
    parts = {"model": {"state": state, "hidden": {}, "frozen": [], "evaluating": []}}
    checkpoint.write(made.checkpoints, parts, info)


def exported(
    made: PackageFolder, output: Path, *, average: str | None = None, **changed: Any
) -> dict[str, Any]:
    """Does what the operation would ask; gives the result."""
    place = output.parent / f".{output.name}-place"
    place.mkdir()
    body = {
        "chosen": selection.to_json(selection.parse_selection(made, average=average)),
        "averaged": None,
        "prefix": None,
        "output": str(output),
        "overwrite": False,
    }
    request = {"kind": "export", **sessions.own_identity(), **body, **changed}
    (place / analysis_folder.REQUEST).write_text(json.dumps(request))
    assert export_task.export(made, place) == "finished"
    return dict(json.loads((place / analysis_folder.RESULT).read_bytes()))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Names, types and every bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def test_for_torch(made: PackageFolder, tmp_path: Path) -> None:
    result = exported(made, tmp_path / "net.pt")
    found = torch.load(tmp_path / "net.pt", weights_only=True)
    assert list(found) == list(STATE) and same(found, STATE)
    assert found["net.last"].is_contiguous(memory_format=torch.channels_last)
    assert found["out.weight"].data_ptr() == found["net.in.weight"].data_ptr(), "tied weights stay tied"
    (of,) = result["checkpoints"]
    stored = checkpoint.read_manifest(checkpoint.checkpoint_folder(made.checkpoints, 0))
    assert of == {"id": 0, "step": 0, "epoch": 0, "sha256": stored.files["model.safetensors"]["sha256"]}
    assert (result["tensors"], result["numbers"], result["tied"]) == (6, 35, {"out.weight": "net.in.weight"})
    assert result["bytes"] == (tmp_path / "net.pt").stat().st_size
    assert result["sha256"] == hashlib.sha256((tmp_path / "net.pt").read_bytes()).hexdigest()


def test_for_safetensors(made: PackageFolder, tmp_path: Path) -> None:
    result = exported(made, tmp_path / "net.safetensors")
    assert same(safetensors.torch.load_file(tmp_path / "net.safetensors"), STATE), "tied ones under each name"
    with safetensors.safe_open(tmp_path / "net.safetensors", "pt") as file:
        about = file.metadata()
    assert about["format"] == "pt" and about["package"] == "one"
    assert json.loads(about["checkpoints"]) == result["checkpoints"]
    assert json.loads(about["tied"]) == {"out.weight": "net.in.weight"}


def test_the_mean_and_the_prefix(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    others = {name: value + 1 for name, value in STATE.items()}
    others["out.weight"] = others["net.in.weight"]
    add(made, 1, others)
    result = exported(made, tmp_path / "net.pth", average="best:3", prefix="net.")
    found = torch.load(tmp_path / "net.pth", weights_only=True)
    assert list(found) == ["in.weight", "norm.count", "half", "last", "empty"]
    expected = ((TIED.double() + 1 + TIED.double()) / 2).float()
    assert torch.equal(found["in.weight"], expected) and found["norm.count"] == 8, "of the best"
    assert found["last"].is_contiguous(memory_format=torch.channels_last)
    assert [one["id"] for one in result["checkpoints"]] == [1, 0] and result["left_out"] == ["out.weight"]
    (note,) = result["notes"]
    assert note.startswith("best:3 ") and " 2" in note
    messages.check(note)


def test_a_prefix_without_its_dot_is_the_module(made: PackageFolder, tmp_path: Path) -> None:
    exported(made, tmp_path / "net.pt", prefix="net")
    assert all(not name.startswith(".") for name in torch.load(tmp_path / "net.pt", weights_only=True))


def test_a_prefix_that_nothing_has(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound, match=r"'model\.'.* net\., out\.") as refused:
        exported(made, tmp_path / "net.pt", prefix="model.")
    assert refused.value.setting == "--prefix"
    messages.check(refused.value)


def test_extra_state_goes_where_it_can(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    extra = {"a._extra_state": {"seen": [1, 2.0, "x"]}, "b._extra_state": {"when": Path("x")}}
    add(made, 1, {"weight": TIED, **extra})
    result = exported(made, tmp_path / "net.pt")
    assert torch.load(tmp_path / "net.pt", weights_only=True)["a._extra_state"] == {"seen": [1, 2.0, "x"]}
    (note,) = result["notes"]
    assert note.endswith(": b._extra_state") and "torch.load" in note
    messages.check(note)
    result = exported(made, tmp_path / "net.safetensors")
    (note,) = result["notes"]
    assert ": a._extra_state, b._extra_state" in note
    messages.check(note)


def test_a_type_that_the_format_lacks(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    add(made, 1, {"weight": torch.zeros(2, dtype=torch.complex128)})
    with pytest.raises(UsageError, match=r"complex128.* weight.*\.pt") as refused:
        exported(made, tmp_path / "net.safetensors")
    messages.check(refused.value)
    assert not (tmp_path / "net.safetensors").exists()


def test_a_file_that_came_meanwhile(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "net.pt").write_text("mine")
    with pytest.raises(Refused, match=r"net\.pt") as refused:
        exported(made, tmp_path / "net.pt")
    messages.check(refused.value)
    assert (tmp_path / "net.pt").read_text() == "mine"


@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
def test_an_error_of_the_disk_leaves_what_stood_there(
    name: str, made: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("before")

    def fault(operation: str, path: str) -> None:
        if operation == "fsync" and path.endswith("weights"):
            raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(durable, "fault", fault)
    with pytest.raises(OSError, match="No space left"):
        exported(made, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_text() == "before"
    assert not (tmp_path / f".{name}-place" / "weights").exists()
