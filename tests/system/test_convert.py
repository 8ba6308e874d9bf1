"""A converted project is checked and trains: with stand-ins of the other trainers."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import roost as roost_package
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder
from tests.cli.programs import roost
from tests.operations.converting.configs import CORNERNET, RECIPE, SPEECHAIN, SQUARES, json_config, recipe
from tests.warming import templates

TWO_OPTIMIZERS = RECIPE.replace(
    """  optim_sches:
    type: noam.Noamlr
    conf:
""",
    """  optim_sches:
    decoder:
      type: exp.ExponentDecayLr
      conf: {optim_type: SGD, optim_conf: {lr: 0.1}, updated_modules: decoder, optim_loss: size}
    encoder:
     type: noam.Noamlr
     conf:
      updated_modules: encoder
      step_per_update: 2
""",
)


@pytest.fixture(scope="module")
def speechain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SpeeChain can be imported; runs start warm with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SPEECHAIN))
        with templates(tmp_path_factory.mktemp("warm")):
            yield


@pytest.mark.usefixtures("speechain")
@pytest.mark.parametrize("text", [RECIPE, TWO_OPTIMIZERS], ids=["one", "two"])
def test_a_recipe_of_speechain_trains(tmp_path: Path, text: str) -> None:
    recipe(tmp_path, text.replace("[[wer, max, 30]]", "[[score, max, 30]]"))
    said = roost("convert", "speechain", "recipes/asr/exp_cfg/100-bpe_tiny.yaml", "-o", "asr", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "no counterpart: num_workers: " in said.stderr and "  roost check config.yaml\n" in said.stdout
    project = tmp_path / "asr"
    shown = roost("run", "config.yaml", "--print-config", cwd=project)
    assert shown.returncode == 0 and "max_grad_norm: 3" in shown.stdout
    checked = roost("check", "config.yaml", "-CPU", cwd=project)
    assert checked.returncode == 0, checked.stderr
    ended = roost("run", "config.yaml", "-CPU", "--name", "a", cwd=project)
    assert ended.returncode == 0, ended.stderr
    metrics = roost_package.Package(project / "exp" / "a").metrics()
    losses = ["loss"] if text == RECIPE else ["decoder_loss", "encoder_loss"]
    assert {*(f"train/{name}" for name in losses), "valid/accuracy", "valid/loss"} <= metrics.keys()
    (typed,) = [line for line in said.stdout.splitlines() if "roost evaluate PACKAGE" in line]
    command = shlex.split(typed.replace("PACKAGE", "exp/a"))[1:]
    assert command[2:] == ["--checkpoints", "average(best:10)", "--variants", "variants.yaml"]
    ended = roost(*command, "-CPU", cwd=project)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    cells = EvaluationFolder(project / "exp" / "a" / "evaluations" / "1").cells()
    assert [(one.variant, one.dataset, one.state) for one in cells] == [
        (f"beam_size=16_ctc_weight={weight}", "test/test-clean", "finished") for weight in (0.0, 0.2)
    ]
    for one in cells:
        assert (
            one.summary is not None
            and "score" in one.summary["metrics"]
            and "speaker" in one.summary["groups"]
        )


def test_a_config_of_cornernet_trains_from_its_weights(tmp_path: Path) -> None:
    weights = {"module.net.1.weight": torch.ones(2, 64), "module.net.1.bias": torch.zeros(2)}
    torch.save(weights, tmp_path / "Squares_500.pkl")
    json_config(tmp_path, SQUARES)
    shutil.copytree(CORNERNET / "core", tmp_path / "core")
    arguments = ["configs/Squares_Tiny.json", "workers=2", "--weights", "Squares_500.pkl", "-o", "squares"]
    said = roost("convert", "cornernet", *arguments, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert f"  cp -r {tmp_path}/core squares/\n" in said.stdout
    project = tmp_path / "squares"
    shutil.copytree(tmp_path / "core", project / "core")
    checked = roost("check", "config.yaml", "-CPU", cwd=project)
    assert checked.returncode == 0, checked.stderr
    ended = roost("run", "config.yaml", "-CPU", "--name", "a", cwd=project)
    assert ended.returncode == 0, ended.stderr
    assert "init_from: weights.safetensors" in ended.stdout and "2 of 2 tensors loaded" in ended.stdout


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    said = roost("convert", "speechain", "missing.yaml", cwd=tmp_path)
    assert said.returncode == 3 and len(said.stderr.splitlines()) == 1
    (tmp_path / "exp.yaml").write_text("a: !!python/object/apply:os.system [touch hacked]\n")
    said = roost("convert", "speechain", "exp.yaml", cwd=tmp_path)
    assert said.returncode == 4 and len(said.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exp.yaml"]
