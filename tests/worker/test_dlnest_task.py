from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.base.system.worker_protocol import DEADLINE_VARIABLE, TIME_LIMIT
from roost.config import objects
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.sessions import INITIALIZED
from roost.worker import dlnest_task
from tests.project.dlnest.loops import PROJECT, compare, fingerprint, package
from tests.worker.test_train_task import Quiet, session


@pytest.fixture(autouse=True)
def folder() -> Iterator[None]:
    """The worker's working folder is the package."""
    before = Path.cwd()
    yield
    os.chdir(before)


def train(made: PackageFolder, stop: Any = None, **request: Any) -> str:
    os.chdir(made.path)
    try:
        return dlnest_task.train(made, session(made, **request), stop or Quiet())
    finally:
        objects.unload_project(made.path)


def test_stops_and_goes_on_exactly(tmp_path: Path) -> None:
    whole = package(tmp_path)
    assert train(whole) == "finished"
    assert json.loads((whole.path / "environment.json").read_bytes())["seed"] == 3
    made = package(tmp_path)
    assert train(made, initialize=True) == INITIALIZED
    assert [(one.step, one.reason) for one in made.store().lineage()] == [(0, "start")]
    assert train(made) == "finished"
    compare(fingerprint(made), fingerprint(whole))
    assert [one.scheduled for one in checkpoint.read_manifests(made.checkpoints)][-2:] == [2, 3]
    assert len(made.derived["ckpt_fast"]) == 2 and len(made.derived["ckpt_consistent"]) == 1


def test_stops_before_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (PROJECT / "Model" / "Runner.py").read_text()
    paced = source.replace("self.seen = log\n", "self.seen = log\n        time.sleep(0.01)\n", 1)
    files = {"Model/Runner.py": f"import time\n{paced}"}  # leaves the processor to other tests
    made = package(tmp_path, files, epochs=10**6, patience=10**6)
    monkeypatch.setenv(DEADLINE_VARIABLE, str(time.time() + 4))
    assert train(made) == TIME_LIMIT
    assert "time limit: ended" in capsys.readouterr().out
    newest = checkpoint.read_manifests(made.checkpoints)[-1]
    assert newest.step == made.records().rows[-1]["step"] or newest.reason == "signal"


def test_the_longest_time_ends_the_run(tmp_path: Path) -> None:
    made = package(tmp_path, epochs=10**6, patience=10**6, roost={"max_time": "0.2s"})
    assert train(made) == "finished"
    steps = checkpoint.read_manifests(made.checkpoints)[-1].step
    assert train(made) == "finished"
    assert checkpoint.read_manifests(made.checkpoints)[-1].step == steps


def test_a_key_of_roost_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="roost"):
        train(package(tmp_path, roost={"sed": 3}))


def test_a_skipped_run_does_nothing(tmp_path: Path) -> None:
    made = package(tmp_path)
    file = made.path / "LifeCycle.py"
    begin = "    def BAll(self):\n"
    file.write_text(file.read_text().replace(begin, f'{begin}        return "Skip"\n'))
    assert train(made) == "finished"
    assert checkpoint.ids(made.checkpoints) == []


def test_objects_of_the_project_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (PROJECT / "LifeCycle.py").read_text()
    given = source.replace('"worse": self.worse}', '"worse": self.worse, "mean": self.mean}').replace(
        'self.best, self.worse = saveDict["best"], saveDict["worse"]',
        'print("loaded", isinstance(saveDict["mean"], Mean), saveDict["mean"].count)',
    )
    made = package(tmp_path, {"LifeCycle.py": given}, epochs=1)
    assert train(made) == "finished"
    assert list(made.checkpoints.glob("*/dlnest.pickled.pt"))
    capsys.readouterr()
    assert train(made) == "finished"
    assert "loaded True 11" in capsys.readouterr().out


def test_bf16(tmp_path: Path) -> None:
    made = package(tmp_path, epochs=1, roost={"precision": "bf16", "seed": 3})
    assert train(made) == "finished"
    plain = package(tmp_path, epochs=1, roost={"seed": 3})
    assert train(plain) == "finished"
    rows, others = ([row["train/loss"] for row in one.records().rows[:1]] for one in (made, plain))
    assert rows != others and rows == pytest.approx(others, rel=0.05)
