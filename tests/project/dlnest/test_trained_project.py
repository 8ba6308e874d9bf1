"""What a checkpoint holds of a project of DLNest, loaded in the contract's order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import roost
from roost.base.errors import CheckpointError, ContractError, NotFound
from roost.package.checkpoints import checkpoint
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from roost.project.dlnest.trained_project import load_trained
from roost.project.package_context import package_code
from tests.package.dlnest.original import original, state
from tests.project.dlnest import loops, projects

CALLS = """
    def __getattribute__(self, name):
        if name[:1] in "BA" and name[1:2].isupper():
            calls = object.__getattribute__(self, "__dict__").setdefault("calls", [])
            calls.append(name)
        return super().__getattribute__(name)
"""


def trained(root: Path) -> PackageFolder:
    made = loops.package(root, epochs=2)
    assert loops.run(made) == "finished"
    return made


def test_the_model_of_a_checkpoint(tmp_path: Path) -> None:
    made = trained(tmp_path)
    newest = checkpoint.ids(made.checkpoints)[-1]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(made.checkpoints, newest))
    runner = roost.open_package(made.path).load_model(device="cpu")
    for name, value in runner.model.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(value, states["dlnest"]["runner"][0][name])
    before = roost.open_package(made.path).load_model(checkpoint=0, device="cpu", info={"inputs": 6})
    assert not torch.equal(before.model.layers[0].weight, runner.model.layers[0].weight)  # type: ignore[union-attr]


def test_the_log_and_the_order_of_the_calls(tmp_path: Path) -> None:
    made = trained(tmp_path)
    life_cycle = made.path / "LifeCycle.py"
    life_cycle.write_text(life_cycle.read_text() + CALLS)
    with package_code(made):
        loaded = load_trained(made, device="cpu")
        calls = list(dict.fromkeys(loaded.project.life_cycle.calls))
        assert calls == ["BAll", "BDatasetInit", "ADatasetInit", "BModelInit", "AModelInit"]
        assert len(loaded.log["acc"]) == 2 and loaded.checkpoint is not None
        assert loaded.project.life_cycle.best == max(loaded.log["acc"]), "restored after BAll, too"
        assert loaded.project.status.isAnalyzing()
    with package_code(made):
        assert load_trained(made, untrained=True, device="cpu").log["acc"] == []


def test_what_cannot_be_analysed(tmp_path: Path) -> None:
    made = projects.package(tmp_path)
    with package_code(made), pytest.raises(NotFound, match="no checkpoint yet"):
        load_trained(made, device="cpu")
    life_cycle = made.path / "LifeCycle.py"
    life_cycle.write_text(life_cycle.read_text().replace("self.best = -1\n", 'return "Skip"\n', 1))
    with package_code(made), pytest.raises(ContractError, match="nothing to analyse"):
        load_trained(made, untrained=True, device="cpu")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    made = trained(tmp_path)
    newest = checkpoint.ids(made.checkpoints)[-1]
    file = checkpoint.checkpoint_folder(made.checkpoints, newest) / "dlnest.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with package_code(made):
        loaded = load_trained(made, device="cpu")
        assert loaded.checkpoint is not None and loaded.checkpoint.id == newest - 1
        assert "damaged" in loaded.notes[0]
    with package_code(made), pytest.raises(CheckpointError):
        load_trained(made, checkpoint=newest, device="cpu")


def test_a_package_of_dlnests_own_programs(tmp_path: Path) -> None:
    files = {
        file.relative_to(loops.PROJECT).as_posix(): file.read_text() for file in loops.PROJECT.rglob("*.py")
    }
    values = {"num_workers": 0, "step_seconds": 0.0}
    path = original(tmp_path / "Saves" / "old", files, **values)
    made = OriginalPackage.open(path)
    with package_code(made):
        loaded = load_trained(made, device="cpu")
    assert loaded.checkpoint is not None and loaded.checkpoint.id == 3
    assert loaded.log["acc"] == [0.75] and loaded.project.life_cycle.best == 0.5
    expected = state(3)["runner"][0]
    for name, value in loaded.project.runner.model.state_dict().items():
        assert torch.equal(value, expected[f"module.{name}"])
    torch.save(state(3, dataset={"meter": Meter()}), path / "Checkpoints" / "state_3.ckpt")
    with package_code(made), pytest.raises(CheckpointError, match=r"Meter.*--trust"):
        load_trained(made, device="cpu")
    with package_code(made):
        assert load_trained(made, device="cpu", trust=True).checkpoint == loaded.checkpoint


class Meter:
    """An object that only a pickle can hold."""
