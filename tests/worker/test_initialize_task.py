"""``--initialize``: step 0 is saved, the model is reported, and a run that continues from it has the same
bits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import CheckpointError, ConfigError, NotFound, TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import initial_weights
from roost.package.sessions import INITIALIZED
from roost.project import loaded_model
from roost.train.checkpointing.checkpointer import Checkpointer
from tests.messages import Messages
from tests.project.projects import DATASET, HOOKS, RUNNER, project
from tests.train.parts import rows_of
from tests.worker.test_train_task import Quiet, model, train

FROZEN = ["net.0.*"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data": {"batch_size": 10, "num_workers": 2}},
        {"on_non_finite": "rollback"},
        {"freeze": FROZEN, "gradient_accumulation_steps": 2},
        {"hooks": ["Hooks.py:Rules"], "averages": {"ema": {"method": "ema", "decay": 0.5}}},
    ],
)
def test_what_goes_on_gives_the_bits_of_a_run_in_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    draws = HOOKS + "\n    def on_start(self, trainer):\n        __import__('torch').rand(7)\n"
    whole = project(tmp_path / "whole", hooks_code=draws, **settings)
    assert train(whole) == "finished"
    cut = project(tmp_path / "cut", hooks_code=draws, **settings)
    assert train(cut, initialize=True) == INITIALIZED
    (only,) = checkpoint.read_manifests(cut.checkpoints)
    assert (only.step, only.reason, only.id) == (0, "start", 0)
    assert train(cut) == "finished"
    assert model(cut) == model(whole) and rows_of(cut.path) == rows_of(whole.path)


def test_the_model_is_reported_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = project(tmp_path, freeze=FROZEN)
    train(package, initialize=True)
    said = package.model_summary.read_text()
    assert said in capsys.readouterr().out
    lines = said.splitlines()
    assert lines[:2] == [
        "MODULE  CLASS       OUTPUT  PARAMETERS  TRAINED",
        "(all)   Runner                      19  some",
    ]
    assert "net.0   Linear      10x3            15  none" in lines
    (total,) = (line for line in lines if line.startswith("parameters: "))
    assert re.findall(r"\d+", total) == ["19", "4", "15", "76", "0"]
    assert lines[-4:-1] == ["  weights         76 B", "  gradients       16 B", "  optimizer main  0 B"]
    assert lines[-1].startswith("  activations") and " 10 " in lines[-1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "x, y = batch",
            "raise ValueError('no luck')",
            "ValueError: no luck",
        ),
        (
            "def loss(",
            "def update(self, stepper, batches):\n        return {}\n\n    def d_loss(",
            "update()",
        ),
    ],
)
def test_a_model_that_cannot_be_looked_at_is_initialized_all_the_same(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    plain = "\n    def evaluate(self, batch):\n        return {}\n"
    package = project(tmp_path, runner=RUNNER.replace(old, new) + plain, max_steps=3)
    assert train(package, initialize=True) == INITIALIZED
    text = package.model_summary.read_text()
    assert said in text and re.search(r"\n  activations  ", text) and "PARAMETERS" in text
    assert checkpoint.ids(package.checkpoints) == [0]


def test_a_stop_that_came_first_counts(tmp_path: Path) -> None:
    package = project(tmp_path)
    assert train(package, Quiet("early"), initialize=True) == "early"
    assert checkpoint.ids(package.checkpoints) == [0] and not package.model_summary.exists()


def test_a_run_that_has_begun_is_not_initialized_again(tmp_path: Path) -> None:
    package = project(tmp_path)
    train(package, initialize=True)
    assert train(package, initialize=True) == "finished"


def test_a_disk_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    package = project(tmp_path)
    monkeypatch.setattr(Checkpointer, "save", lambda *_, **__: False)
    with pytest.raises(TrainingError, match="step 0") as refused:
        train(package, initialize=True)
    messages.check(refused.value)


# --- what a run begins with -------------------------------------------------------------------------------


def weights(package: PackageFolder, id: int = 0) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, id))[
        1
    ]["model"]["state"]
    return state


def begun(folder: Path, **settings: Any) -> PackageFolder:
    made = project(folder, **settings)
    train(made, initialize=True)
    return made


def test_several_runs_share_their_first_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = begun(tmp_path / "first", seed=7)
    other = begun(tmp_path / "other", init_from=str(first.path))
    own = begun(tmp_path / "own")
    assert all(torch.equal(weights(other)[name], one) for name, one in weights(first).items())
    assert not torch.equal(weights(own)["net.0.weight"], weights(first)["net.0.weight"])
    assert "init_from:" in capsys.readouterr().out
    (kept,) = initial_weights.read(other.path)
    assert "checkpoint 0 " in kept.about and kept.loaded.startswith("4 of 4 ")
    assert initial_weights.read(first.path) == []


def test_weights_do_not_change_what_is_drawn(tmp_path: Path) -> None:
    """A run from its own first weights is that run."""
    whole = project(tmp_path / "whole")
    train(whole)
    same = project(tmp_path / "same", init_from=str(begun(tmp_path / "first").path))
    train(same)
    assert model(same) == model(whole) and rows_of(same.path) == rows_of(whole.path)


def test_a_session_that_goes_on_does_not_need_the_file(tmp_path: Path) -> None:
    file = tmp_path / "w.pt"
    whole = project(tmp_path / "whole", init_from=str(file))
    torch.save(weights(begun(tmp_path / "first", seed=7)), file)
    train(whole)
    cut = begun(tmp_path / "cut", init_from=str(file))
    data = (cut.path / initial_weights.NAME).read_bytes()
    file.unlink()
    assert train(cut) == "finished"
    assert model(cut) == model(whole)
    assert (cut.path / initial_weights.NAME).read_bytes() == data
    assert json.loads(data)["init_from"][0]["path"] == str(file)


def test_other_weights_for_a_run_that_goes_on_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = begun(tmp_path)
    train(package, overrides=["+init_from=nothing.pt"], force=True)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("init_from ") and "checkpoint" in line for line in lines)
    assert not any("nothing.pt" in line for line in lines)


def test_without_a_checkpoint_it_begins_anew_and_needs_it(tmp_path: Path, messages: Messages) -> None:
    package = project(tmp_path, init_from="w.pt")
    for _ in range(2):
        with pytest.raises(NotFound, match=r"w.pt") as refused:
            train(package)
        assert refused.value.setting == "init_from"
        messages.check(refused.value)
    torch.save(weights(begun(tmp_path / "first", seed=7)), package.path / "w.pt")
    assert train(package) == "finished"


def test_frozen_parameters_stay_and_the_others_move(tmp_path: Path) -> None:
    package = begun(tmp_path, freeze=FROZEN, runner=RUNNER)
    before = {name: one.clone() for name, one in weights(package).items()}
    train(package)
    newest = checkpoint.read_manifests(package.checkpoints)[-1]
    after = weights(package, newest.id)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "net.2.weight", "net.2.bias"
    }  # fmt: skip
    _, states = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, newest.id))
    assert states["model"]["frozen"] == ["net.0.weight", "net.0.bias"]
    found = loaded_model.load_experiment(package, device="cpu", info={})
    assert not found.runner.get_parameter("net.0.weight").requires_grad


def test_frozen_in_a_compiled_step(tmp_path: Path) -> None:
    package = begun(
        tmp_path, freeze=FROZEN, step_mode="compile", max_steps=2, runner=RUNNER.replace("0.5", "0.0")
    )
    before = weights(package)["net.0.weight"].clone()
    train(package)
    assert torch.equal(weights(package, checkpoint.ids(package.checkpoints)[-1])["net.0.weight"], before)


def test_other_parameters_frozen_by_force_do_not_fit_the_optimizer(tmp_path: Path) -> None:
    package = begun(tmp_path, freeze=FROZEN)
    with pytest.raises(CheckpointError):
        train(package, overrides=["~freeze"], force=True)


def test_a_glob_that_matches_nothing_is_reported_with_its_place(tmp_path: Path, messages: Messages) -> None:
    package = project(tmp_path, freeze=["nett.*"], provenance={"freeze": "config.yaml:9"})
    with pytest.raises(ConfigError, match=r"'nett\.\*'.*\(at config.yaml:9\).*'net") as refused:
        train(package)
    assert refused.value.setting == "freeze"
    messages.check(refused.value)


def test_the_data_need_no_weights(tmp_path: Path) -> None:
    """What draws in `Dataset.build` is seeded apart: weights from elsewhere move nothing."""
    drawing = DATASET.replace("generator=torch.Generator().manual_seed(0)", "")
    first = begun(tmp_path / "a", dataset=drawing)
    second = begun(tmp_path / "b", dataset=drawing, init_from=str(first.path))
    train(first)
    train(second)
    assert model(first) == model(second)
