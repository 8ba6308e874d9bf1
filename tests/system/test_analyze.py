"""Analyses beside a training, and after the death of who asked for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.base.system import process_identity
from roost.lab.sessions.session_control import request_stop
from roost.operations.lifecycle.run import RunRequest, run
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.project.trained import trained
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

LOOKS = """
def experience(self):
    last = self.log["train/loss"][0][-1]
    return {"state": self.package.state, "step": self.checkpoint.step, "recorded": last}
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
    package = PackageFolder.open(started.package)
    try:
        wait_for(lambda: checkpoint.ids(package.checkpoints))
        (config.parent / "AnalyzeScripts" / "new.py").write_text(LOOKS)
        for number in (1, 2):
            said = roost("analyze", package.path, "-s", "new", "-CPU")
            assert said.returncode == 0, said.stdout + said.stderr
            value = analysis_folder.read_result(package.path / "analysis" / str(number))["value"]
            assert value["state"] == "running" and value["recorded"] > 0 and value["step"] > 0
        assert package.state == "running"
    finally:
        request_stop(started.running.session())
        assert started.process.wait(100) == 75, package.output.read_text()
    assert package.state == "stopped" and not list(package.checkpoints.glob("*.corrupt*"))


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
    (analysis,) = analysis_folder.read_all(package.path / "analysis")
    assert analysis.state == "running" and analysis.supervisor_pid is not None
    pids.append(analysis.supervisor_pid)
    started = {pid: process_identity.start_ticks(pid) for pid in pids}
    os.kill(program.pid, number)
    program.wait(100)
    boot = process_identity.boot_id()
    wait_for(
        lambda: not any(process_identity.is_alive(pid, ticks, boot) for pid, ticks in started.items()), 30
    )
    (analysis,) = analysis_folder.read_all(package.path / "analysis")
    assert analysis.state == "stopped" and analysis.record is not None
    assert analysis.record["reason"] == "killed"
    os.close(package.lock())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.needs_program("setpriv")
def test_the_package_of_another_user_in_another_folder(tmp_path: Path) -> None:
    """Moved, from a machine where its session still runs, and of a user whose files may only be read."""
    package, moved, mine = trained(tmp_path), tmp_path / "theirs" / "moved", tmp_path / "mine"
    elsewhere = {"state": "running", "host": "elsewhere", "boot_id": "another", "pid": 1, "start_ticks": 1}
    (package.path / "sessions" / "1.json").write_text(json.dumps(elsewhere))
    moved.parent.mkdir()
    package.path.rename(moved)
    mine.mkdir()
    (mine / "look.py").write_text("def experience(self): return self.checkpoint.id")
    os.chown(mine, 65534, 65534)
    for folder_above in (tmp_path, *tmp_path.parents[:-1]):
        folder_above.chmod(folder_above.stat().st_mode | 0o055)
    # Reading everything, as if Python lay where anybody may read; writing nothing of root's.
    capability = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *capability]

    def look(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*other, *ROOST, "analyze", moved, "-s", mine / "look.py", "-CPU", *arguments]
        homes = {"HOME": str(mine), **{f"XDG_{name}_HOME": str(mine / name) for name in ("STATE", "CACHE")}}
        return subprocess.run(
            list(map(str, command)),
            cwd=mine,
            env={**os.environ, **homes},
            capture_output=True,
            text=True,
            timeout=90,
        )

    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    said = look()
    assert said.returncode == 5 and said.stderr.count("\n") <= 2, said.stderr
    assert "Permission denied" in said.stderr and "-o DIR" in said.stderr
    said = look("-o", mine / "looks")
    assert said.returncode == 0, said.stdout + said.stderr
    assert analysis_folder.read_result(mine / "looks" / "1")["value"] == 2
    assert (mine / "looks" / "1" / analysis_folder.RESULT).stat().st_uid == 65534
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before
