"""`continue -c K`, then `continue`: the new branch goes on, the old one is never chosen again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project

ALL = "{every: 1ep, fast: 99}"


def trained(tmp_path: Path) -> PackageFolder:
    """Three epochs, checkpoints 0, 1 and 2. While there is a file "hold", workers wait at their imports."""
    config = project(tmp_path / "p", max_epochs="3", checkpoint=ALL, test_at_end="none")
    waits = f"import os, time\nwhile os.path.exists({str(tmp_path / 'hold')!r}):\n    time.sleep(0.01)\n"
    runner = tmp_path / "p" / "Model" / "Runner.py"
    runner.write_text(f"{runner.read_text()}\n{waits}")
    said = roost("run", config)
    assert said.returncode == 0, said.stderr
    (path,) = (tmp_path / "p" / "runs").iterdir()
    return PackageFolder.open(path)


def line(made: PackageFolder) -> list[int]:
    return [info.id for info in made.store().lineage()]


@pytest.mark.soak
def test_the_new_branch_goes_on(tmp_path: Path) -> None:
    made = trained(tmp_path)
    steps = [info.step for info in made.store().lineage()]
    assert line(made) == [0, 1, 2]
    assert roost("continue", made.path, "-c", 0).returncode == 0
    assert line(made) == [0, 3, 4]
    said = roost("continue", made.path, "max_epochs=4")
    assert said.returncode == 0 and f" step {steps[2]}" in said.stdout
    assert line(made) == [0, 3, 4, 5]
    (shown,) = [
        one for one in json.loads(roost("show", made.path, "--json").stdout)["checkpoints"] if one["newest"]
    ]
    assert shown["id"] == 5


def test_a_branch_that_was_killed_before_its_first_save_goes_on(tmp_path: Path) -> None:
    made = trained(tmp_path)
    first = made.store().lineage()[0].step
    hold = tmp_path / "hold"
    hold.touch()
    assert roost("continue", made.path, "-c", 0, "--detach").returncode == 0
    record = json.loads((made.path / "sessions" / "2.json").read_text())
    for pid in (record["guard_pid"], record["pid"], record["worker_pid"]):
        os.kill(pid, signal.SIGKILL)
    hold.unlink()
    assert line(made) == [0]
    said = roost("continue", made.path)
    assert said.returncode == 0 and f" step {first}" in said.stdout, said.stdout
    assert line(made) == [0, 3, 4]


@pytest.mark.soak
def test_a_branch_that_could_not_begin_changes_nothing(tmp_path: Path) -> None:
    made = trained(tmp_path)
    weights = made.path / "Checkpoints" / "state_0.ckpt" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole + b"x")
    said = roost("continue", made.path, "-c", 0)
    assert said.returncode == 1 and "state_0.ckpt" in said.stderr and "Traceback" not in said.stderr
    weights.write_bytes(whole)
    limited = [
        sys.executable,
        "-c",
        "import resource, os, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))\nos.execv(sys.argv[1], sys.argv[1:])",
    ]
    command = [*limited, *ROOST, "continue", str(made.path), "-c", "0"]
    assert subprocess.run(command, capture_output=True, timeout=100).returncode != 0
    assert line(made) == [0, 1, 2]
    said = roost("continue", made.path, "max_epochs=4")
    assert said.returncode == 0 and line(made) == [0, 1, 2, 3], said.stderr
