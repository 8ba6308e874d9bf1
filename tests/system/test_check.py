"""`roost check`, as a person types it before a long run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.operations.lifecycle.new_project import new_project
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.waiting import wait_for
from tests.warming import temporary_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

WAITS = """
import os, subprocess, sys, threading
import roost

class Rules(roost.Hook):
    def on_save(self, trainer, path):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("pids", os.getpid(), child.pid, flush=True)
        threading.Event().wait()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where folders for a while go; empty when a check has ended."""
    with temporary_folder(tmp_path_factory.mktemp("place")) as made:
        yield made


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_project_that_is_fine(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    before = contents(config.parent)
    said = roost("check", config, "max_epochs=20", "-CPU")
    assert said.returncode == 0, said.stdout + said.stderr
    *stages, ready, disk, memory = said.stdout.splitlines()
    assert ", ".join(line[:11].strip() for line in stages) == (
        "copy, imports, data, model, samples, start, first step, row, save, last step, validation, speed, "
        "load"
    )
    assert ready.startswith("ready: ") and "32 steps" in ready and "640 steps" in ready
    assert disk.startswith("disk: ") and "5 checkpoints" in disk and said.stderr == ""
    assert memory.startswith("memory: ")
    assert contents(config.parent) == before, "nothing is written into save_root"
    assert contents(place) == []


def test_what_a_run_requires_and_this_machine_lacks(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    require = 'require={gpu: A100, torch: "<1", cuda: ">=99"}'
    said = roost("check", config, require, "-CPU", "--json")
    assert said.returncode == 0, said.stdout + said.stderr
    found = json.loads(said.stdout)
    assert found["is_ready"] and found["warnings"] == found["unmet"]
    assert [line.partition(":")[0] for line in found["unmet"]] == [
        "require.torch",
        "require.cuda",
        "require.gpu",
    ]
    assert roost("run", config, require, "-CPU").returncode == 5
    new_project(tmp_path / "dlnest", template="dlnest")
    said = roost("check", tmp_path / "dlnest" / "root_config.json", "roost.require.memory=40GB", "-CPU")
    assert said.returncode == 0, said.stdout + said.stderr
    warning, ready = said.stdout.splitlines()[-2:]
    assert warning.startswith("warning: require.memory: requires") and ready.startswith("ready: ")


def test_as_json_with_a_disk_that_will_not_do(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    said = roost("check", config, "max_epochs=1000000000", "checkpoint.fast=1000000000", "-CPU", "--json")
    assert said.returncode == 0, said.stdout + said.stderr
    found = json.loads(said.stdout)
    assert found["is_ready"] and found["exit_code"] == 0 and found["failed"] is None
    assert found["stages"][0]["name"] == "copy" and found["stages"][-1]["name"] == "load"
    (warning,) = found["warnings"]
    assert str(tmp_path / "project" / "runs") in warning and " 1,000,000,0" in warning
    estimate = found["estimate"]
    assert estimate["disk_bytes"] > estimate["free_bytes"] > 0 and estimate["total_steps"] == 32_000_000_000
    assert "first step" in said.stderr
    assert contents(place) == []


def test_a_failure_after_an_epoch_is_reported_as_by_a_run(place: Path, tmp_path: Path) -> None:
    """The last batch of the epoch has one sample, and batch normalisation wants two."""
    config = project(tmp_path / "project")
    runner = config.parent / "Model" / "Runner.py"
    text = runner.read_text()
    assert "nn.Linear(" in text
    runner.write_text(text.replace("nn.Linear(", "nn.Sequential(nn.BatchNorm1d(8), nn.Linear(", 1))
    lines = runner.read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines) if "nn.BatchNorm1d(8)" in line)
    lines[number] += ")"
    runner.write_text("\n".join(lines) + "\n")
    said = roost("check", config, "data.batch_size=37", "-CPU")  # 1000 = 27 * 37 + 1
    assert said.returncode == 1, said.stdout + said.stderr
    printed = said.stdout.splitlines()
    at = next(n for n, line in enumerate(printed) if line.startswith("last step"))
    assert printed[at].endswith("failed")
    assert printed[at + 1].startswith(("error:", "Traceback")) and "  Model/Runner.py:" in said.stdout
    assert "Expected more than 1 value per channel" in said.stdout
    (status,) = said.stderr.splitlines()
    assert "ready" not in said.stdout and status.startswith("failed") and status.endswith(" last step")
    assert "roost debug" not in said.stdout, "its package is deleted"
    assert contents(place) == []


def test_a_file_that_the_package_would_not_have(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    (config.parent / ".cache").mkdir()
    (config.parent / ".cache" / "offset.txt").write_text("1")
    dataset = config.parent / "Dataset" / "Dataset.py"
    text = dataset.read_text().replace(
        "def build(self)", "def prepare(self):\n        open('.cache/offset.txt')\n\n    def build(self)"
    )
    dataset.write_text(text)
    said = roost("check", config, "-CPU")
    assert said.returncode == 1 and re.search(r"^failed\b.* data\b", said.stderr, re.MULTILINE)
    assert ".cache/offset.txt" in said.stdout
    assert contents(place) == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["max_epochs=0"], 4, "max_epochs"),
        (["data.batch_sise=3"], 4, "batch_size"),
        (["save_root=/proc/roost-runs"], 1, "/proc"),
        (["save_root=/dev/null/runs"], 1, "/dev/null"),
        (["early_stopping.monitor=valid/x"], 4, "valid/x"),
        (["--device", "cuda"], 5, "GPU"),
        (["-CPU", "--device", "cuda"], 2, "--device cpu"),
    ],
)
def test_bad_input(
    arguments: list[str], code: int, says: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config = project(tmp_path / "project")
    before = contents(config.parent)
    said = roost("check", config, *arguments)
    assert said.returncode == code, said.stdout + said.stderr
    assert says in said.stdout + said.stderr and "Traceback" not in said.stdout + said.stderr
    assert contents(place) == [] and contents(config.parent) == before


def waiting(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A check in the middle of its way, with a child that would outlive it; their pids."""
    config = project(tmp_path / "project", hooks="[Hooks.py:Rules]")
    (config.parent / "Hooks.py").write_text(WAITS)
    program = subprocess.Popen(
        [*ROOST, "check", str(config), "-CPU"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    line = next(line for line in program.stdout if line.startswith("pids"))
    return program, [int(pid) for pid in line.split()[1:]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_in_the_middle(number: signal.Signals, place: Path, tmp_path: Path) -> None:
    program, pids = waiting(tmp_path)
    started = {pid: process_identity.start_ticks(pid) for pid in pids}
    program.send_signal(number)
    program.wait(100)
    boot = process_identity.boot_id()
    wait_for(
        lambda: not any(process_identity.is_alive(pid, ticks, boot) for pid, ticks in started.items()), 20
    )
    assert program.stdout is not None and program.stderr is not None
    with program.stdout, program.stderr:
        printed = program.stderr.read()
    if number == signal.SIGKILL:
        assert len(list(place.iterdir())) == 1, "it could not tidy up any more"
        said = roost("check", tmp_path / "project" / "config.yaml", "hooks=[]", "-CPU")
        assert said.returncode == 0, said.stdout + said.stderr
    else:
        assert program.returncode == 130
        assert re.match(r"stopped\b.* save: .*\n$", printed)
    assert contents(place) == []


def test_two_at_a_time(place: Path, tmp_path: Path) -> None:
    """The second must not take the folder of the first for one that a killed check has left."""
    program, _ = waiting(tmp_path)
    (folder,) = place.iterdir()
    assert roost("check", tmp_path / "project" / "config.yaml", "hooks=[]", "-CPU").returncode == 0
    assert list(place.iterdir()) == [folder]
    os.kill(program.pid, signal.SIGINT)
    with program:
        program.communicate(timeout=100)
    assert program.returncode == 130 and contents(place) == []
