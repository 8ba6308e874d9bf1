"""Weights in checkpoints of DLNest's contract, by the attributes of the runner."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from roost.base.errors import CheckpointError, NotFound, UsageError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.selection import CheckpointSelection
from roost.package.dlnest.original_package import OriginalPackage
from roost.worker.results import project_weights, weight_mean
from tests.package.dlnest.original import original, state
from tests.project.dlnest import loops


def test_the_modules_by_attribute(tmp_path: Path) -> None:
    made = loops.package(tmp_path, epochs=1)
    runner = made.path / "Model" / "Runner.py"
    runner.write_text(
        runner.read_text().replace(
            "        self.loss =",
            "        self.heads = [nn.Linear(2, 1), nn.Linear(2, 1)]\n        self.loss =",
        )
    )
    loops.run(made)
    path = checkpoint.checkpoint_folder(made.checkpoints, 0)
    info, weights = project_weights.read(path)
    saved = checkpoint.read(path)[1]["dlnest"]["runner"]
    assert info.step == 11
    assert torch.equal(weights["model.layers.0.weight"], saved[0]["layers.0.weight"])
    assert {name for name in weights if name.startswith("heads")} == {
        "heads.0.weight", "heads.0.bias", "heads.1.weight", "heads.1.bias"
    }  # fmt: skip
    assert not any("optimizer" in name or "exp_avg" in name for name in weights)
    assert weight_mean.read_weights(path)[1]["state"].keys() == weights.keys()
    with pytest.raises(NotFound, match="keeps no averages"):
        weight_mean.read_weights(path, average="ema")


def test_states_of_a_form_of_the_project(tmp_path: Path) -> None:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    state = {
        "net": {"w": torch.ones(1), "_extra_state": 3},
        "list": [torch.zeros(1), {"b": torch.ones(3)}],
        "own_optimizer": optimizer.state_dict(),
        "optimizer": {"o": {"state": {0: {"exp_avg": torch.ones(1)}}, "param_groups": []}},
        1: {"w": torch.ones(2)},
    }
    found = project_weights.weights_of({"model": state}, {})
    assert sorted(found) == ["1.w", "list.0", "list.1.b", "net.w"]
    assert project_weights.weights_of({}, {}) == {}


@pytest.mark.parametrize("runner", [None, [1, 2], {}, {"optimizer": {"o": {"state": {}}}}])
def test_a_checkpoint_without_weights(tmp_path: Path, runner: object) -> None:
    package = OriginalPackage.open(original(tmp_path / "old"))
    torch.save(state(3, runner=runner), package.checkpoints / "state_3.ckpt")
    with pytest.raises(CheckpointError, match=r"state_3\.ckpt has no weights"):
        project_weights.read_original(package, CheckpointSelection())


def test_a_package_of_dlnests_own_programs(tmp_path: Path) -> None:
    path = original(tmp_path / "old")
    package = OriginalPackage.open(path)
    info, weights, notes = project_weights.read_original(package, CheckpointSelection())
    assert info.id == 3 and notes == []
    assert torch.equal(weights["0.layers.0.weight"], state(3)["runner"][0]["module.layers.0.weight"])
    assert not any("exp_avg" in name for name in weights)
    torch.save(state(3, dataset={"thing": package}), path / "Checkpoints" / "state_3.ckpt")
    assert "OriginalPackage" in project_weights.read_original(package, CheckpointSelection())[2][0]
    with pytest.raises(UsageError, match="not averaged"):
        project_weights.read_original(package, CheckpointSelection(kind="last", count=2))
