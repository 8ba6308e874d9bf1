"""Exporting weights: what is refused before anything is started, and one for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import CheckpointError, NotFound, Refused, RoostError, UsageError
from roost.operations.models.export_weights import ExportedWeights, ExportWeightsRequest, export_weights
from roost.operations.sessions.running_session import follow
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.messages import Messages
from tests.operations.models.worker_cut import cut_worker
from tests.operations.packages import package


def exported(made: PackageFolder, output: Path, **asked: Any) -> ExportedWeights:
    with export_weights(ExportWeightsRequest(**{"package": made.path, "output": output, **asked})) as started:
        *_, ended = follow(started.running)
        assert isinstance(ended, Session)
        found = started.outcome(ended)
        assert started.process.wait(100) == ended.recorded.exit_code
    return found


def test_of_a_package_without_its_project(
    finished: PackageFolder, tmp_path: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its project was deleted, and it was copied; the second export takes the name that `roost ls` prints."""
    before = {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()}
    found = exported(finished, tmp_path / "net.pt")
    assert (found.state, found.exit_code, found.error) == ("succeeded", 0, None)
    newest = checkpoint.ids(finished.checkpoints)[-1]
    assert [one["id"] for one in found.checkpoints] == [newest]
    state = checkpoint.read(checkpoint.checkpoint_folder(finished.checkpoints, newest), only=["model"])[1][
        "model"
    ]["state"]
    written = torch.load(tmp_path / "net.pt", weights_only=True)
    assert state.keys() == written.keys() and all(torch.equal(state[name], written[name]) for name in state)
    assert {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()} == before
    monkeypatch.chdir(tmp_path)
    by_name = Path(finished.path.name)
    found = exported(finished, tmp_path / "net.pt", package=by_name, averaged="nobody", overwrite=True)
    assert (found.state, found.exit_code, found.tensors) == ("failed", 3, 0)
    assert found.error is not None and "'nobody'" in found.error
    messages.check(found.error)
    assert torch.load(tmp_path / "net.pt", weights_only=True).keys() == written.keys(), (
        "what stood there stands"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.pt", "runs"], "nothing else is left"


@pytest.mark.parametrize(
    ("asked", "error", "setting", "fact"),
    [
        ({"output": "net.onnx"}, UsageError, "--weights", ".pt, .pth, .safetensors"),
        ({"output": "net"}, UsageError, "--weights", ".pt, .pth, .safetensors"),
        ({"output": "missing/net.pt"}, NotFound, "--weights", "missing"),
        ({"output": "folder.pt"}, Refused, "--weights", "folder.pt"),
        ({"output": "taken.pt"}, Refused, "--weights", "--overwrite"),
        ({"checkpoint": "9"}, NotFound, None, "0, 1, 2"),
        ({"average": "best:0"}, UsageError, "--average", "'best:0'"),
        ({"average": "best:2", "monitor": "x"}, NotFound, "--monitor", "valid/loss"),
        ({"package": "nowhere"}, NotFound, None, "nowhere"),
    ],
)
def test_what_is_refused_at_once(
    asked: dict[str, str],
    error: type[RoostError],
    setting: str | None,
    fact: str,
    tmp_path: Path,
    messages: Messages,
) -> None:
    made = package(tmp_path / "runs")
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "taken.pt").write_text("mine")
    request: dict[str, Any] = {
        "package": made.path,
        **asked,
        "output": tmp_path / asked.get("output", "net.pt"),
    }
    if "package" in asked:
        request["package"] = tmp_path / asked["package"]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error) as refused, export_weights(ExportWeightsRequest(**request)):
        raise AssertionError("it began")
    assert refused.value.setting == setting and fact in str(refused.value)
    messages.check(refused.value)
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "taken.pt").read_text() == "mine"


def test_a_package_without_a_checkpoint_and_one_that_another_program_wrote(
    tmp_path: Path, messages: Messages
) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    request = ExportWeightsRequest(package=made.path, output=tmp_path / "net.pt")
    with (
        pytest.raises(NotFound) as refused,
        export_weights(request),
    ):
        raise AssertionError("it began")
    assert refused.value.where == made.path
    messages.check(refused.value)
    torch.save({"w": torch.zeros(2)}, made.checkpoints / "state_0.ckpt")
    with pytest.raises(CheckpointError) as refused, export_weights(request):
        raise AssertionError("it began")
    assert "state_0.ckpt" in str(refused.value)
    messages.check(refused.value)


def test_a_folder_that_cannot_be_written_into(finished: PackageFolder, messages: Messages) -> None:
    request = ExportWeightsRequest(package=finished.path, output=Path("/proc/self/net.pt"))
    with (
        pytest.raises(Refused) as refused,
        export_weights(request),
    ):
        raise AssertionError("it began")
    assert refused.value.where == Path("/proc/self")
    messages.check(refused.value.fix)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_file_that_is_written_is_a_success_whatever_comes_after(
    finished: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    cut_worker(monkeypatch, tmp_path / "site", tmp_path, is_killed=is_killed)
    found = exported(finished, tmp_path / "net.pt")
    assert (found.state, found.exit_code, found.error) == ("succeeded", 0, None)
    assert found.tensors == len(torch.load(tmp_path / "net.pt", weights_only=True)) > 0
    assert ("SIGKILL" if is_killed else "Input/output error") in found.notes[-1]
