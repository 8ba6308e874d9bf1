"""Analyses beside a training, and after the death of who asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.analysis import folder
from roost.base import process
from roost.operations.run import RunRequest, run
from roost.operations.running import ask
from roost.package import checkpoint
from roost.package.package import Package
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.project.trained import trained
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

LOOKS = """
def experience(self):
    last = self.log["train/loss"][0][-1]
    return {"state": self.package.state(), "step": self.checkpoint.step, "recorded": last}
"""

CLINGS = """
import os, subprocess, sys, threading
def experience(self):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(os.getpid(), child.pid, flush=True)
    threading.Event().wait()
"""


def test_beside_a_training_that_goes_on(tmp_path: Path) -> None:
    """Which saves as often as it can, and removes what an analysis may be reading."""
    config = project(tmp_path / "project", max_epochs="1000000", save_root="../runs", threads="1")
    (config.parent / "AnalyzeScripts").mkdir(exist_ok=True)
    started = run(RunRequest(config=config, device="cpu", overrides=["checkpoint.fast=1"]))
    assert started.process is not None and started.running is not None
    package = Package.open(started.package)
    try:
        wait_for(lambda: checkpoint.ids(package.checkpoints), 60)
        (config.parent / "AnalyzeScripts" / "new.py").write_text(LOOKS)
        for number in (1, 2):
            said = roost("analyze", package.path, "-s", "new", "-CPU")
            assert said.returncode == 0, said.stdout + said.stderr
            value = folder.read_result(package.path / "analysis" / str(number))["value"]
            assert value["state"] == "running" and value["recorded"] > 0 and value["step"] > 0
        assert package.state() == "running"
    finally:
        ask(started.running.session())
        assert started.process.wait(60) == 75, package.output.read_text()
    assert package.state() == "stopped" and not list(package.checkpoints.glob("*.corrupt*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_program_killed_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    package = trained(tmp_path)
    (tmp_path / "clings.py").write_text(CLINGS)
    arguments = [*ROOST, "analyze", str(package.path), "-s", str(tmp_path / "clings.py"), "-CPU"]
    program = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert program.stdout is not None
    with program.stdout:
        pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 2
    (analysis,) = folder.read_all(package.path / "analysis")
    assert analysis.state == "running" and analysis.supervisor_pid is not None
    pids.append(analysis.supervisor_pid)
    started = {pid: process.start_ticks(pid) for pid in pids}
    os.kill(program.pid, number)
    program.wait(10)
    boot = process.boot_id()
    wait_for(lambda: not any(process.alive(pid, ticks, boot) for pid, ticks in started.items()), 30)
    (analysis,) = folder.read_all(package.path / "analysis")
    assert analysis.state == "stopped" and analysis.record is not None
    assert analysis.record["reason"] == "killed"
    os.close(package.lock())
