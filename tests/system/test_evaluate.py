"""Evaluations by the real program: killed, gone on with, in the queue, and after a training."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.operations.reading.verify import verify
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder
from tests.cli.programs import ROOST, roost
from tests.evaluation.digits import DATASET, RUNNER, digits_package
from tests.evaluation.evaluating import requested
from tests.mounting import may_mount
from tests.waiting import wait_for

sys.path.insert(0, str(Path(__file__).parent))

from soak_evaluation import digests

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

VARIANTS = "list: {plain: {}, noisy: {noise: 1}}\n"


def test_killed_and_gone_on_with_other_ranks(tmp_path: Path) -> None:
    """The program, its guard and its supervisor are killed in the middle of the grid, so the ranks, too."""
    package = digits_package(tmp_path, batch_seconds=0.02)
    (tmp_path / "v.yaml").write_text(VARIANTS)
    asked = ["evaluate", package.path, "--variants", tmp_path / "v.yaml", "-CPU", "--checkpoints", "best"]
    said = roost(*asked, "--name", "whole")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "noisy" in said.stdout and "error_rate" in said.stdout
    whole = tmp_path / "whole"
    (package.path / evaluation_folder.NAME / "whole").rename(whole)
    folder = package.path / evaluation_folder.NAME / "cut"
    for turn, ranks in enumerate((1, 2, 3)):
        arguments = [*ROOST, *map(str, asked), "--name", "cut", "--devices", str(ranks)]
        program = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda turn=turn: _num_begun(folder) > turn)
        session = _newest_session(folder)
        for pid in (program.pid, session["guard_pid"], session["pid"]):  # their workers die with them
            os.kill(pid, signal.SIGKILL)
        program.wait()
        wait_for(lambda: not _is_locked(folder))
    said = roost(*asked, "--name", "cut", "--devices", "2", "--json")
    assert said.returncode == 0, said.stderr
    assert [one["state"] for one in json.loads(said.stdout)["cells"]] == ["finished"] * 4
    assert digests(folder) == digests(whole)
    again = roost(*asked, "--name", "cut")
    assert again.returncode == 0 and "has finished" in again.stderr


@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
def test_a_disk_that_fills_in_mid_cell(tmp_path: Path) -> None:
    """Finished cells are kept, the error says what to type, and with space the files are the same."""
    package = digits_package(tmp_path)
    (tmp_path / "v.yaml").write_text(VARIANTS)
    asked = f"{shlex.join(ROOST)} evaluate copy --variants v.yaml -CPU --checkpoints best --name one"
    script = f"""
    mkdir copy whole && mount -t tmpfs -o size=20m tmpfs copy && cp -r {package.path}/. copy
    {asked} > /dev/null 2>&1; echo "whole: $?"
    cp -r copy/evaluations/one/. whole && rm -r copy/evaluations/one
    used=$(df --output=used copy | tail -1); cells=$(du -sk whole | cut -f1)
    mount -o remount,size=$((used + cells * 2 / 3))k copy
    {asked}; echo "full: $?"
    find copy -name summary.json | wc -l
    mount -o remount,size=20m copy
    {asked} > /dev/null; echo "space: $?"; cp -r copy/evaluations/one/. {tmp_path / "cut"}
    """
    command = ["unshare", "-m", "bash", "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    said = result.stdout + result.stderr
    assert {"whole: 0", "full: 1", "space: 0"} <= set(said.splitlines()), said
    (error,) = re.findall("error: .*", said)
    assert "[Errno 28]" in error and error.endswith("then type the same command again"), said
    assert {"1", "2", "3"} & set(said.splitlines()), "cells were finished before"
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


@pytest.mark.skipif(not may_mount(), reason="only root may mount")
@pytest.mark.parametrize("name", ["new", "begun"])
def test_a_package_that_is_read_only(tmp_path: Path, name: str) -> None:
    package = digits_package(tmp_path)
    requested(package, "begun")
    script = f"""
    mount --bind {package.path} {package.path} && mount -o remount,ro,bind {package.path}
    {shlex.join(ROOST)} evaluate {package.path} -CPU --name {name}; echo "end: $?"
    """
    result = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True)
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and "Read-only file system" in line and "copy" in line, line
    assert result.stdout == f"end: {5 if name == 'new' else 1}\n"


def _num_begun(folder: Path) -> int:
    return len(list(folder.rglob("cell.json")))


def _newest_session(folder: Path) -> dict[str, int]:
    newest = max((folder / "sessions").glob("?.json"), key=lambda path: int(path.stem))
    found: dict[str, int] = wait_for(lambda: _with_pids(newest))
    return found


def _with_pids(path: Path) -> dict[str, int] | None:
    record = json.loads(path.read_text())
    return record if "guard_pid" in record and "pid" in record else None


def _is_locked(folder: Path) -> bool:
    from roost.base import safe_read

    return safe_read.is_locked(folder / "lock")


def test_after_a_training(tmp_path: Path) -> None:
    (tmp_path / "Dataset.py").write_text(DATASET)
    (tmp_path / "Model").mkdir()
    (tmp_path / "Model" / "Runner.py").write_text(RUNNER)
    (tmp_path / "v.yaml").write_text(VARIANTS)
    settings = {
        "runner": "Model/Runner.py:Runner", "dataset": "Dataset.py:Dataset", "max_steps": 4, "threads": 1,
        "batch_seconds": 0.0, "data": {"batch_size": 200, "num_workers": 0}, "test_at_end": "none",
        "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}}, "checkpoint": {"every": "2"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    command = ["run", "config.json", "--name", "a", "--evaluate", "--variants", "v.yaml"]
    said = roost(*command, "-CPU", "--devices", "2", cwd=tmp_path)
    assert said.returncode == 0, said.stdout + said.stderr
    found = evaluation_folder.EvaluationFolder(tmp_path / "runs" / "a" / "evaluations" / "1")
    assert found.is_finished and len(found.cells()) == 4
    package = PackageFolder.open(tmp_path / "runs" / "a")
    assert package.state == "succeeded"
    verdicts = {one.path: one.verdict for one in verify(package.path) if one.what == "evaluation"}
    assert set(verdicts.values()) == {"good"} and "evaluations/1/request.json" in verdicts
    shutil.rmtree(found.path)
    _refuse("evaluate", "runs/a", "-CPU", "--datasets", "nope", cwd=tmp_path, code=3)
    (tmp_path / "w.yaml").write_text("list: {plain: {nose: 1}}\n")
    _refuse("evaluate", "runs/a", "-CPU", "--variants", "w.yaml", "--devices", "2", cwd=tmp_path, code=1)
    _refuse("evaluate", "runs/a", "-CPU", "--name", "b", "--template", "{variant}", cwd=tmp_path, code=4)


@pytest.mark.parametrize("variant, said", [("{nose: 1}", "error: "), ("{temperature: cold}", "TypeError")])
def test_a_failed_evaluation_after_a_training(tmp_path: Path, variant: str, said: str) -> None:
    (tmp_path / "Dataset.py").write_text(DATASET)
    (tmp_path / "Runner.py").write_text(RUNNER)
    (tmp_path / "v.yaml").write_text(f"list: {{plain: {variant}}}\n")
    settings = {
        "runner": "Runner.py:Runner", "dataset": "Dataset.py:Dataset", "max_steps": 2, "threads": 1,
        "batch_seconds": 0.0, "data": {"batch_size": 200, "num_workers": 0}, "test_at_end": "none",
        "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    ended = roost(
        "run", "config.json", "--name", "a", "--evaluate", "--variants", "v.yaml", "-CPU", cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert PackageFolder.open(tmp_path / "runs" / "a").state == "succeeded"
    assert said in ended.stdout and "Traceback (most recent call last)" not in ended.stdout
    assert "the evaluation 1 failed, the training has succeeded" in ended.stdout
    whole = tmp_path / "runs" / "a" / "evaluations" / "1" / "sessions" / "0.traceback.txt"
    assert whole.exists() == (said == "TypeError"), "a mistake in what was asked needs no traceback"


def _refuse(*command: object, cwd: Path, code: int) -> None:
    """A mistake that only the worker finds leaves nothing in the package."""
    said = roost(*command, cwd=cwd)
    assert said.returncode == code and "is removed" in said.stderr, said.stdout + said.stderr
    assert not (cwd / "runs" / "a" / evaluation_folder.NAME).exists()
