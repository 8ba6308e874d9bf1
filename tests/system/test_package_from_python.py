"""Packages from Python beside the real program: `run`, `continue`, and what reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import roost
from roost.package.checkpoints import checkpoint
from tests.cli import programs
from tests.operations.packages import project
from tests.waiting import wait_for

PROGRAM = """
import os, signal, sys
import numpy as np
import roost
from roost.base import durable

calls = 0
def kill(operation, path):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

with roost.open_package(sys.argv[1]) as run:
    run.save({"w": np.full(100, 2.0)})
    durable.fault = kill
    run.save({"w": np.full(100, 3.0)})
durable.fault = None
print(calls)
"""


def stand(run: roost.Package) -> float:
    return float(run.load()["w"][0])


@pytest.mark.soak
def test_a_kill_at_every_call_of_a_save_leaves_one_that_loads(tmp_path: Path) -> None:
    def killed(at: int) -> tuple[roost.Package, subprocess.CompletedProcess[str]]:
        run = roost.Package.new({"checkpoint": {"fast": 2}}, root=tmp_path)
        with run:
            run.save({"w": np.full(100, 1.0)})
        command = [sys.executable, "-c", PROGRAM, str(run.path), str(at)]
        return run, subprocess.run(command, capture_output=True, text=True)

    run, done = killed(-1)
    total = int(done.stdout)
    assert stand(run) == 3.0 and run.state == "succeeded"
    for at in range(1, total + 1):
        run, done = killed(at)
        assert done.returncode == -9
        # The last calls of all record the end of the session.
        assert (run.state, stand(run)) in [("crashed", 2.0), ("crashed", 3.0), ("succeeded", 3.0)]
        with run:
            run.save({"w": np.full(100, 4.0)})
        assert stand(run) == 4.0 and not list(run.path.rglob("*.tmp-*"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = project(tmp_path_factory.mktemp("run") / "p", max_epochs="3")
    done = programs.roost("run", config, "checkpoint.fast=9", "-CPU", "--name", "done")
    assert done.returncode == 0, done.stderr
    return config.parent / "runs" / "done"


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> roost.Package:
    """Moved, and its project is not where it was."""
    return roost.open_package(shutil.copytree(finished, tmp_path / "moved" / "done", symlinks=True))


def test_the_model_of_a_run_that_was_moved(copied: roost.Package, finished: Path) -> None:
    model = copied.load_model(device="cpu", info={})
    expected = roost.open_package(finished).load()["model"]["state"]
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_continue_goes_on_from_what_was_set_current(copied: roost.Package) -> None:
    before = checkpoint.ids(copied.checkpoints)
    with copied:
        copied.set_current(0)
    step = checkpoint.read_manifests(copied.checkpoints)[0].step
    shown = json.loads(programs.roost("show", copied.path, "--json").stdout)
    assert [one["id"] for one in shown["checkpoints"] if one["newest"]] == [0]
    done = programs.roost("continue", copied.path)
    assert done.returncode == 0, done.stderr
    assert copied.state == "succeeded" and copied.sessions()[-1].request["device"] == "cpu"
    newest = checkpoint.read_manifests(copied.checkpoints)[-1]
    assert newest.line[0] == (0, 0) and newest.line[1][0] > before[-1] and copied.current == newest.id
    assert copied.records().starts[-1] == (3, step)


def test_continue_goes_on_from_weights_that_were_changed_and_says_so(copied: roost.Package) -> None:
    with copied:
        parts = copied.load()
        name = next(iter(parts["model"]["state"]))
        parts["model"]["state"][name].zero_()
        changed = copied.save(parts)
    done = programs.roost("continue", copied.path, "max_epochs=4")
    assert done.returncode == 0, done.stderr
    newest = checkpoint.read_manifests(copied.checkpoints)[-1]
    assert newest.parent is not None and newest.line == [(0, newest.id)] and newest.id > changed
    shown = json.loads(programs.roost("show", copied.path, "--json").stdout)
    (reason,) = (one for one in shown["inexact"] if f"checkpoint {changed - 1}" in one)
    assert "Python" in reason and reason in done.stdout + done.stderr


def test_a_run_that_trains_is_read_and_not_written(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="100000")
    command = [sys.executable, "-m", "roost.cli", "run", str(config), "-CPU", "--name", "long"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        folder = tmp_path / "p" / "runs" / "long"
        try:
            wait_for(lambda: (folder / "_package.json").exists())
            run = roost.open_package(folder)
            for _ in range(5):
                assert run.load_model(device="cpu") is not None
            with pytest.raises(roost.RoostError, match=r"session 1 .*roost stop"), run:
                run.save(run.load())
            run.describe("still running")
        finally:
            assert programs.roost("stop", folder).returncode == 0
            process.wait()
    assert run.state == "stopped" and len(run.sessions()) == 1
    assert programs.roost("verify", folder).returncode == 0


def test_every_reading_command_copes_with_a_package_made_from_python(tmp_path: Path) -> None:
    with roost.Package.new({"lr": 0.1}, root=tmp_path / "runs", name="one", description="by hand") as run:
        run.save(1, step=7)
        running = programs.roost("stop", run.path)
        assert running.returncode == 5 and "Python" in running.stderr
        assert json.loads(programs.roost("ls", tmp_path, "--json").stdout)[0]["state"] == "running"
    (row,) = json.loads(programs.roost("ls", tmp_path, "--json").stdout)
    assert (row["name"], row["state"], row["step"], row["description"]) == ("one", "succeeded", 7, "by hand")
    for command in ("show", "verify", "logs"):
        done = programs.roost(command, run.path)
        assert done.returncode == 0, done.stderr
    plotted = programs.roost("plot", run.path, "-o", tmp_path / "x.svg")
    assert (
        plotted.returncode != 0 and "Traceback" not in plotted.stderr and plotted.stderr.startswith("error: ")
    )
    with run:
        run.save(2, metrics={"loss": 1.0})
    done = programs.roost("plot", run.path, "-o", tmp_path / "x.svg")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(programs.roost("ls", tmp_path, "--json").stdout)
    assert (row["metric"], row["last"], row["sessions"]) == ("loss", 1.0, 2)
    done = programs.roost("continue", run.path)
    assert done.returncode == 5 and done.stderr.count("\n") == 1 and "Runner" in done.stderr
