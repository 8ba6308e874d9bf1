"""A package's Runner and data, built again with the weights of one checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import CheckpointError, Damaged, NotFound, Refused
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.project.loaded_model import LoadedExperiment, load_experiment
from roost.project.package_context import package_code
from roost.train.model.module_state import ModuleState
from tests.messages import Messages
from tests.project.projects import DATASET, project
from tests.project.trained import trained


def load(package: PackageFolder, **options: Any) -> LoadedExperiment:
    with package_code(package):
        return load_experiment(package, device="cpu", **options)


def saved(package: PackageFolder, id: int) -> Any:
    return checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, id))[1]["model"]["state"]


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def damage(package: PackageFolder, id: int) -> None:
    path = checkpoint.checkpoint_folder(package.checkpoints, id) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def test_the_newest_weights_a_chosen_one_and_none(tmp_path: Path, messages: Messages) -> None:
    package = trained(tmp_path)
    assert checkpoint.ids(package.checkpoints) == [0, 1, 2]
    newest = load(package)
    assert newest.checkpoint is not None and newest.checkpoint.id == 2 and newest.notes == []
    assert same(newest.runner.state_dict(), saved(package, 2))
    assert not any(part.training for part in newest.runner.modules())
    assert (
        newest.data is not None
        and len(newest.data.train) == 40
        and type(newest.dataset).__name__ == "Dataset"
    )
    assert (
        newest.runner.info == {"classes": 2} and newest.args["width"] == 3 and newest.settings.max_steps == 6
    )
    assert same(load(package, checkpoint=0).runner.state_dict(), saved(package, 0))
    first = load(package, untrained=True)
    assert first.checkpoint is None and not same(first.runner.state_dict(), saved(package, 0))
    with pytest.raises(NotFound, match=r"checkpoint 7.* 0, 1, 2") as refused:
        load(package, checkpoint=7)
    messages.check(refused.value)


def test_a_damaged_newest_one_is_passed_over_and_stays(tmp_path: Path, messages: Messages) -> None:
    package = trained(tmp_path)
    damage(package, 2)
    before = sorted(path.name for path in package.path.rglob("*"))
    loaded = load(package)
    assert loaded.checkpoint is not None and loaded.checkpoint.id == 1
    (note,) = loaded.notes
    assert note.startswith("state_2.ckpt: model.safetensors ")
    messages.check(note)
    assert sorted(path.name for path in package.path.rglob("*")) == before
    with pytest.raises(Damaged, match=r"state_2\.ckpt|model\.safetensors"):
        load(package, checkpoint=2)


def test_without_the_data_by_its_info(tmp_path: Path) -> None:
    package = trained(tmp_path)
    (package.path / "Dataset.py").write_text(
        DATASET.replace("import torch\n", "import torch, no_such_library\n")
    )
    with pytest.raises(ModuleNotFoundError):
        load(package)
    loaded = load(package, info={"classes": 9})
    assert loaded.dataset is None and loaded.data is None and loaded.runner.info == {"classes": 9}
    assert same(loaded.runner.state_dict(), saved(package, 2))


def test_data_that_is_gone_names_the_way_without_it(tmp_path: Path) -> None:
    package = trained(tmp_path)
    code = DATASET.replace("        x = torch", "        open(self.args['here'])\n        x = torch")
    (package.path / "Dataset.py").write_text(code)
    with pytest.raises(KeyError) as caught:
        load(package)
    assert "load_model(info={...})" in caught.value.__notes__[0]


def test_elsewhere_without_its_project(tmp_path: Path) -> None:
    package = trained(tmp_path / "project", hint="${project}/data")
    weights = saved(package, 2)
    moved = PackageFolder.open(shutil.move(package.path, tmp_path / "moved"))
    shutil.rmtree(tmp_path / "project")
    loaded = load(moved)
    assert same(loaded.runner.state_dict(), weights)
    assert loaded.args["hint"] == f"{tmp_path}/project/data"
    assert load(moved, project="/new").args["hint"] == "/new/data"


def test_what_cannot_be_loaded_says_why(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound, match="untrained") as refused:
        load(project(tmp_path / "a"))
    messages.check(refused.value)
    with pytest.raises(Refused, match=r"Runner.*run\.load\(\)") as refused:
        load(PackageFolder.create(tmp_path / "b", values={"lr": 0.1}))
    messages.check(refused.value)
    package = trained(tmp_path / "c")
    (package.path / "Model" / "Runner.py").write_text(
        (package.path / "Model" / "Runner.py").read_text().replace('self.args["width"]', "5")
    )
    with pytest.raises(CheckpointError, match="net") as refused:
        load(package)
    messages.check(refused.value)


def test_the_state_of_the_whole_module_comes_back(tmp_path: Path) -> None:
    """As in training: what is frozen stays so; only the mode is that of evaluation."""
    loaded = load(trained(tmp_path))
    assert ModuleState(loaded.runner).state_dict()["frozen"] == []
    assert "net" in ModuleState(loaded.runner).state_dict()["evaluating"]
