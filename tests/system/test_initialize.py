"""`roost run --initialize`, then `continue`: the bits of a run in one; several runs from the same weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base import state_tree
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.cli.programs import roost
from tests.operations.packages import project

RUNNER = """
import torch
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 1))

    def loss(self, batch):
        x, y = batch
        return (self.net(x).squeeze(1) - y).square().mean()
"""

DATASET = """
import torch
import roost

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return torch.randn(8) + index / 60, torch.tensor(index / 60)

class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=Points(), valid=Points())
"""


def config(folder: Path, **settings: str) -> Path:
    made = project(folder, max_epochs="2", data="{batch_size: 16, num_workers: 2}", **settings)
    (made.parent / "Model" / "Runner.py").write_text(RUNNER)
    (made.parent / "Dataset" / "Dataset.py").write_text(DATASET)
    return made


def state(path: Path) -> Any:
    package = PackageFolder.open(path)
    newest = package.store().lineage()[-1]
    _, states = checkpoint.read(package.store().path(newest.id), only=["model", "optimizers", "rank-0"])
    skeleton, leaves = state_tree.pack(states)
    return newest.step, skeleton, {name: bytes(leaf.data) for name, leaf in leaves.items()}


@pytest.mark.soak
def test_initialized_then_trained_is_a_run_in_one(tmp_path: Path) -> None:
    made = config(tmp_path / "p")
    runs = made.parent / "runs"
    said = roost("run", made, "--name", "cut", "--initialize", "-CPU")
    assert said.returncode == 0, said.stderr
    assert "net.1   BatchNorm1d  16x6" in said.stdout and "memory" in said.stdout
    assert "roost continue" in said.stderr
    (row,) = json.loads(roost("ls", runs, "--json").stdout)
    assert (row["state"], row["step"], row["error"]) == ("stopped", 0, None)
    shown = json.loads(roost("show", runs / "cut", "--json").stdout)
    assert [(one["state"], one["exit_code"], one["reason"]) for one in shown["sessions"]] == [
        ("stopped", 0, "initialized")
    ]
    assert shown["model"] == str(runs / "cut" / "_model.txt")
    assert [one["step"] for one in shown["checkpoints"]] == [0]
    assert roost("verify", runs / "cut").returncode == 0

    again = roost("run", made, "--name", "cut", "--initialize", "-CPU")
    assert again.returncode == 0 and "roost continue" in again.stderr
    assert roost("run", made, "--name", "whole", "-CPU").returncode == 0
    said = roost("continue", runs / "cut")
    assert said.returncode == 0, said.stderr
    assert state(runs / "cut") == state(runs / "whole")
    assert json.loads(roost("show", runs / "cut", "--json").stdout)["inexact"] == []


def test_runs_from_the_same_weights(tmp_path: Path) -> None:
    made = config(tmp_path / "p")
    runs = made.parent / "runs"
    assert roost("run", made, "--name", "first", "--initialize", "seed=5", "-CPU").returncode == 0
    said = roost("run", made, "--name", "a", "+init_from=runs/first", "+freeze=net.0.*", "-CPU")
    assert said.returncode == 0, said.stderr
    assert re.search(r"init_from: runs/first \(checkpoint 0 .*step 0\): 9 .*\b9 ", said.stdout)
    assert re.search(r"frozen: 2 .*\b6 .*\b54 .*\b73 .*: net\.0\.\*", said.stdout)
    first, trained = (
        checkpoint.read(PackageFolder.open(runs / name).store().path(id))[1]["model"]["state"]
        for name, id in (("first", 0), ("a", PackageFolder.open(runs / "a").store().lineage()[-1].id))
    )
    assert torch.equal(first["net.0.weight"], trained["net.0.weight"])
    assert not torch.equal(first["net.3.weight"], trained["net.3.weight"])
    shown = roost("show", runs / "a").stdout
    assert re.search(r"runs/first: checkpoint 0 .*step 0", shown)


@pytest.mark.soak
def test_check_goes_through_the_weights(tmp_path: Path) -> None:
    made = config(tmp_path / "p")
    torch.save({"net.0.weight": torch.zeros(6, 8), "other": torch.zeros(1)}, made.parent / "w.pt")
    said = roost("check", made, "+init_from=w.pt", "-CPU")
    assert said.returncode == 4 and "7 missing" in said.stderr + said.stdout
    said = roost("check", made, "+init_from={path: w.pt, strict: false}", "+freeze=net.0.*", "-CPU")
    assert said.returncode == 0 and re.search(r"\b1 of 9 ", said.stderr + said.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["+init_from=nothing.pt"], 3, ("init_from: ", "received 'nothing.pt'")),
        (["--initialize", "+step_mode=dry"], 4, ("step_mode: ",)),
    ],
)
def test_what_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: list[str], code: int, said: tuple[str, ...]
) -> None:
    made = config(tmp_path / "p")
    ended = roost("run", made, *arguments)
    assert ended.returncode == code and all(words in ended.stderr for words in said)
    assert not (made.parent / "runs").exists()
