"""Predictions by the real program: beside a training, and killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.lab.sessions.session_control import request_stop
from roost.operations.lifecycle.run import RunRequest, run
from roost.package import sessions
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import predictions
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.project.predicting import PREDICTS, predicting
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

HANGS = PREDICTS.replace(
    "assert not self.training",
    "import threading\n        self.seen = getattr(self, 'seen', 0) + 1\n"
    "        if self.seen == 3: print('hanging', flush=True); threading.Event().wait()",
)


@pytest.mark.soak
def test_beside_a_training_that_goes_on(tmp_path: Path) -> None:
    """Which saves as often as it can, and removes what is being read."""
    config = project(tmp_path / "project", max_epochs="1000000", save_root="../runs", threads="1")
    runner = config.parent / "Model" / "Runner.py"
    method = "\n    def predict(self, batch):\n        return {'label': self.evaluate(batch)['loss']}\n"
    runner.write_text(runner.read_text().rstrip("\n") + "\n" + method)
    started = run(RunRequest(config=config, device="cpu", overrides=["checkpoint.fast=1"]))
    assert started.process is not None and started.running is not None
    package = PackageFolder.open(started.package)
    try:
        wait_for(lambda: checkpoint.ids(package.checkpoints))
        said = roost("predict", "-r", package.path, "--data", "valid", "-CPU", "--limit", "5")
        assert said.returncode == 0, said.stdout + said.stderr
        lines = (package.path / "predictions" / "1" / predictions.PREDICTIONS_FILE).read_text().splitlines()
        assert [json.loads(line)["index"] for line in lines] == list(range(5))
        assert package.state == "running"
    finally:
        request_stop(started.running.session())
        assert started.process.wait(100) == 75, package.output.read_text()


def test_killed_in_the_middle_it_leaves_nothing_half(tmp_path: Path) -> None:
    package = predicting(tmp_path)
    runner = package.path / "Model" / "Runner.py"
    runner.write_text(HANGS)
    arguments = [*ROOST, "predict", str(package.path), "--data", "valid", "-CPU"]
    program = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    with program.stderr:
        assert any("hanging" in line for line in program.stderr)
    root = package.path / predictions.NAME
    (place,) = root.iterdir()
    assert (place / "result" / predictions.PREDICTIONS_FILE).stat().st_size, "two batches are written"
    record = sessions.load_json(place / "session.json")
    assert record is not None
    os.kill(program.pid, signal.SIGKILL)
    program.wait(100)
    who = record["pid"], record["start_ticks"], record["boot_id"]
    wait_for(lambda: not process_identity.is_alive(*who))
    assert [path.name.startswith(".roost-unfinished-") for path in root.iterdir()] == [True]
    assert predictions.read_all(package) == []
    os.close(package.lock())
    runner.write_text(PREDICTS)
    said = roost("predict", package.path, "--data", "valid", "-CPU")
    assert said.returncode == 0, said.stderr
    assert [path.name for path in root.iterdir()] == ["1"], "what was left is swept"
