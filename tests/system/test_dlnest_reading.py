"""Every operation that reads, on a package of DLNest's contract and on one of DLNest's own programs:
it works, or says in one line why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.package.dlnest.original import original
from tests.project.dlnest import loops


def roost(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roost", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    made = loops.package(root / "Saves", epochs=1)
    assert loops.run(made) == "finished"
    made.path.rename(root / "Saves" / "run")
    files = {
        file.relative_to(loops.PROJECT).as_posix(): file.read_text() for file in loops.PROJECT.rglob("*.py")
    }
    original(root / "Saves" / "old", files, num_workers=0, step_seconds=0.0)
    (root / "AnalyzeScripts").mkdir()
    (root / "AnalyzeScripts" / "acc.py").write_text(
        "def experience(self):\n    return self.log['acc'][-1], self.model is self.runner\n"
    )
    return root


def test_both_are_listed(folder: Path) -> None:
    rows = json.loads(roost(folder, "ls", "Saves", "--json").stdout)
    old, run = sorted(rows, key=lambda row: str(row["name"]))
    assert (old["name"], old["state"], old["description"]) == (
        "old", "foreign", "of DLNest, read only; baseline"
    )  # fmt: skip
    assert run["name"] == "run" and run["metric"] == "valid/acc"
    assert [row["name"] for row in json.loads(roost(folder, "ls", "Saves/old", "--json").stdout)] == ["old"]


@pytest.mark.parametrize(("name", "weight"), [("run", "model.layers.0.weight"), ("old", "0.layers.0.weight")])
def test_weights_and_analyses(folder: Path, name: str, weight: str) -> None:
    done = roost(folder, "export", f"Saves/{name}", "--weights", f"{name}.pt")
    assert done.returncode == 0, done.stderr
    assert torch.load(folder / f"{name}.pt", weights_only=True)[weight].shape == (8, 6)
    done = roost(
        folder, "analyze", f"Saves/{name}", "-s", str(folder / "AnalyzeScripts/acc.py"), "--device", "cpu"
    )
    assert done.returncode == 0, done.stderr
    assert "true" in done.stdout
    assert ("step 11" if name == "run" else "checkpoint 3, epoch 4") in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "Saves/run", "--data", "valid"], "has no predict()"),
        (["show", "--data", "Saves/run"], "does not say what a batch is"),
        (["show", "Saves/old"], "a package of DLNest: Runner, checkpoints: 2, 3"),
        (["continue", "Saves/old"], "which roost only reads"),
        (["verify", "Saves/old"], "which roost only reads"),
    ],
)
def test_what_cannot_be_done(folder: Path, arguments: list[str], message: str) -> None:
    done = roost(folder, *arguments)
    assert done.returncode != 0 and message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
