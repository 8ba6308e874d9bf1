"""The check of a project of DLNest goes through all that follows an epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from roost.worker.__main__ import main
from tests.project.dlnest import loops, projects

REQUEST = {"overrides": [], "device": "cpu", "project": "/nowhere", "kind": "check"}
COPIED = {"files": 3, "seconds": 0.5}


def check(package: PackageFolder, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code."""
    monkeypatch.chdir(package.path)
    package.new_session({**REQUEST, "copied": COPIED})
    for name in ("stdout", "stderr"):  # main puts its own in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))
    return main([str(package.path), "check"])


def test_every_stage_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check(loops.package(tmp_path), monkeypatch) == 0
    out = capfd.readouterr().out
    stages = [line for line in out.splitlines() if " s  " in line]
    assert [line.split()[0] for line in stages] == ["copy", "imports", "data", "model", "epoch", "load"]
    assert stages[2].endswith("training 11 batches, validation 6 batches")
    assert stages[4].endswith("the log has loss, smoothed, acc, lr, pictures, mean")
    assert stages[5].endswith("the state after 2 steps") and "epoch 0 has ended" in out


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ('log["acc"].append(self.hits / max(self.total, 1))', "epoch"),
        ("self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.8)", "model"),
    ],
)
def test_what_fails_is_named(
    text: str,
    stage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runner = (loops.PROJECT / "Model" / "Runner.py").read_text()
    changed = runner.replace(text, f"missing();{text}")
    assert changed != runner
    package = loops.package(tmp_path, {"Model/Runner.py": changed})
    assert check(package, monkeypatch) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].split()[0] == stage and out.splitlines()[-1].endswith("failed")
    assert "NameError" in err and "Model/Runner.py" in err


def test_a_project_that_skips_the_first_steps_is_told_that_none_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    life_cycle = projects.LIFE_CYCLE + '\n    def BModelOneStep(self):\n        return "Skip"\n'
    assert check(projects.package(tmp_path, {"LifeCycle.py": life_cycle}), monkeypatch) == 0
    assert "0 steps: each was skipped, so runOneStep was not checked" in capfd.readouterr().out


def test_a_project_that_saves_nothing_itself_is_loaded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check(loops.package(tmp_path, saves=False), monkeypatch) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("load ")


def test_a_project_that_skips_everything_has_nothing_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    skips = projects.LIFE_CYCLE.replace("self.best = -1\n\n    def needV", 'return "Skip"\n\n    def needV')
    assert check(projects.package(tmp_path, {"LifeCycle.py": skips}), monkeypatch) == 0
    assert "BAll returned Skip" in capfd.readouterr().out


def test_a_skipped_dataset_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    life = (loops.PROJECT / "LifeCycle.py").read_text()
    skips = f'{life}\n    def BDatasetInit(self):\n        return "Skip"\n'
    assert check(loops.package(tmp_path, {"LifeCycle.py": skips}), monkeypatch) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].startswith("data ") and 'BDatasetInit returned "Skip"' in err
