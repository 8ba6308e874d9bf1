"""A run that is YAML alone, with the real program: no Python file in the project."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.package.checkpoints import checkpoint
from tests.cli.programs import roost as program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

CONFIG = """\
options:
  width: {type: int, default: 16, min: 1, help: numbers between the two layers}
dataset:
  train: &set
    class: roost.Arrays
    arrays: {class: sklearn.datasets.load_iris, return_X_y: true}
    scale: 0.2
    part: [0.0, 0.7]
  valid: {<<: *set, part: [0.7, 0.85]}
  test: {<<: *set, part: [0.85, 1.0]}
runner:
  model:
    class: torch.nn.Sequential
    args:
    - {class: torch.nn.Linear, in_features: 4, out_features: "${width}"}
    - {class: torch.nn.Tanh}
    - {class: torch.nn.Dropout, p: 0.1}
    - {class: torch.nn.Linear, in_features: "${width}", out_features: 3}
  losses:
    label: {class: torch.nn.CrossEntropyLoss}
    smooth: {class: torch.nn.CrossEntropyLoss, label_smoothing: 0.2, weight: 0.5}
  metrics:
    f1: {class: torchmetrics.classification.MulticlassF1Score, num_classes: 3}
data: {batch_size: 16, num_workers: 0}
optimizers: {main: {class: torch.optim.AdamW, lr: 0.05}}
checkpoint: {every: 1ep, fast: 9, best: [{monitor: valid/f1, mode: max}]}
max_epochs: 6
"""


KILLS = """
import os, signal
from pathlib import Path
import roost

class Kills(roost.Hook):
    def __init__(self, step: int, flag: str):
        self.step, self.flag = step, Path(flag)

    def on_step(self, trainer):
        if trainer.progress.step == self.step and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def newest(package: Path) -> dict[str, Any]:
    store = roost.open_package(package).store()
    return checkpoint.read(store.path(checkpoint.ids(package / "Checkpoints")[-1]))[1]["model"]["state"]


@pytest.mark.soak
def test_runs_is_killed_and_goes_on(config: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "runs" / "whole", tmp_path / "runs" / "cut"
    said = program("run", config, "width=8", "--name", "whole", "-CPU")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "valid: " in said.stdout and "f1 " in said.stdout and "test: " in said.stdout
    assert sorted(path.name for path in whole.iterdir() if path.suffix == ".py") == []
    args = json.loads((whole / "args.json").read_text())
    assert args["width"] == 8 and args["runner"]["model"]["args"][0]["out_features"] == "${width}"
    assert json.loads((whole / "provenance.json").read_text())["width"] == "command line"
    (tmp_path / "Kills.py").write_text(KILLS)
    hooks = f"+hooks=[{{class: Kills.py:Kills, step: 17, flag: {tmp_path}/flag}}]"
    said = program("run", config, "width=8", "--name", "cut", "-CPU", hooks)
    assert said.returncode == 1 and (tmp_path / "flag").exists(), said.stdout + said.stderr
    said = program("continue", cut)
    assert said.returncode == 0, said.stdout + said.stderr
    a, b = newest(whole), newest(cut)
    assert a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)
    said = program("continue", cut, "--force", "width=none")
    assert said.returncode == 4 and re.search("width: .* >= 1", said.stderr)


@pytest.mark.soak
def test_is_checked_and_its_data_shown(config: Path, tmp_path: Path) -> None:
    said = program("check", config, "-CPU")
    assert said.returncode == 0 and re.search(r"^load\b.*\bbit", said.stdout, re.MULTILINE), said
    config.write_text(CONFIG.partition("runner:")[0])  # the data alone
    said = program("show", "--data", config)
    assert said.returncode == 0 and re.search("Arrays, .*105 samples", said.stdout), said


def test_a_model_is_loaded_again(config: Path, tmp_path: Path) -> None:
    assert program("run", config, "--name", "it", "max_epochs=1", "-CPU").returncode == 0
    runner = roost.open_package(tmp_path / "runs" / "it").load_model(device="cpu")
    batch = next(iter(roost.Arrays(([[5.0, 3.0, 1.0, 0.2]],)).tensors))
    assert runner.predict(batch)["output"].shape == (1, 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("torch.nn.Tanh", "os.system", "config.yaml:16"),
        ("sklearn.datasets.load_iris", "sklearn.datasets.load_files", "config.yaml:6"),
        ("  losses:\n    label:", "  losses: {}\n  others:\n    label:", "runner.losses: "),
        ("max_epochs: 6", "max_epochs: 6\nwidht: 3", "'width'"),
    ],
)
def test_bad_input_makes_nothing(old: str, new: str, said: str, config: Path, tmp_path: Path) -> None:
    assert old in CONFIG
    config.write_text(CONFIG.replace(old, new))
    found = program("run", config)
    assert found.returncode == 4 and len(found.stderr.splitlines()) == 1 and not (tmp_path / "runs").exists()
    assert said in found.stderr or "'others'" in found.stderr, found.stderr


@pytest.mark.soak
def test_what_only_the_run_can_tell(config: Path) -> None:
    """It is one line all the same, with the setting and its place."""
    config.write_text(CONFIG.replace("label: {", "label: {inputs: [output.logits, batch.1], "))
    found = program("check", config, "-CPU")
    assert found.returncode == 1
    printed = found.stdout + found.stderr
    assert re.search(r"runner\.losses\.label\.inputs: .*output\.logits.*float32", printed)
    assert "(at config.yaml:20)" in printed
    config.write_text(
        CONFIG.replace(
            "label: {class: torch.nn.CrossEntropyLoss", "label: {class: torch.nn.ReLU, inputs: output"
        )
    )
    found = program("check", config, "-CPU")
    assert re.search(r"runner\.losses\.label: .*float32", found.stdout)
    assert "(at config.yaml:20)" in found.stdout + found.stderr
