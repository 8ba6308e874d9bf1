"""Each reason why a package must not be removed, made for real."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.lab.queue import task_file
from roost.operations.keeping import refusals
from roost.package import labels
from roost.package.package import PackageFolder
from tests.lab.labs import Lab
from tests.operations.packages import VALUES, package, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab")
    with lab.here():
        yield lab
    lab.close()


def refusal(path: Path) -> refusals.Refusal | None:
    return next(iter(refusals.find_refusals([path])), None)


def reason(path: Path) -> str | None:
    found = refusal(path)
    return None if found is None else found.reason


def test_an_ended_run_may_go(tmp_path: Path) -> None:
    assert reason(package(tmp_path / "runs").path) is None


def test_a_running_and_a_starred_one_may_not(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    labels.set_starred(made.path, True)
    assert reason(made.path) == "is starred"
    labels.set_starred(made.path, False)
    session(made, "running")
    assert reason(made.path) == "is running"


def test_one_that_a_process_has_locked_may_not(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    fd = made.lock()
    found = refusal(made.path)
    assert (
        found is not None
        and found.is_by_lock
        and refusals.find_use(made.path, refusals.Dependents([])) is None
    )
    os.close(fd)
    assert reason(made.path) is None


def test_one_that_is_being_analyzed_may_not(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    folder = analysis_folder.create(made.path / analysis_folder.NAME)
    analysis_folder.write_request(folder, {"script": {"path": "x.py"}})
    found = reason(made.path)
    assert found is not None and "is being analyzed (analysis/1)" in found


def test_one_that_waits_in_the_queue_may_not(lab: Lab) -> None:
    task = lab.queue("true")
    found = refusal(Path(task.package))
    assert found is not None and task.id in found.reason and found.fix == f"roost kill {task.id}"
    with lab.store() as store:
        store.request_stop(task.id, "stop")
    assert reason(Path(task.package)) is None


def test_one_that_waits_in_a_queue_that_is_not_here_may_not(lab: Lab, tmp_path: Path) -> None:
    task = lab.queue("true")
    with pytest.MonkeyPatch.context() as patch:  # ends before the environment of the lab does
        patch.setenv("ROOST_STATE", str(tmp_path / "other-state"))
        found = refusal(Path(task.package))
    assert found is not None and task.id in found.reason and "--take-over" in str(found.fix)
    assert task_file.read_all(Path(task.package))[0].task.state == "pending"


def test_the_parent_of_a_fork_without_a_copy_may_not(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    made = package(runs)
    parent = {"package": "one", "path": str(made.path), "checkpoint": 2, "step": 30, "sha256": "0" * 64}
    fork = PackageFolder.create(runs, name="fork", values=VALUES, request={"parent": parent})
    session(fork, "stopped")
    found = reason(made.path)
    assert found is not None and "is the parent of fork" in found
    assert refusals.find_refusals([made.path, fork.path]) == []
    (package(tmp_path / "others").checkpoints / "state_2.ckpt").rename(fork.checkpoints / "state_2.ckpt")
    assert reason(made.path) is None


def test_the_initial_weights_of_a_waiting_task_may_not_go(lab: Lab, tmp_path: Path) -> None:
    made, task = package(tmp_path / "runs"), lab.queue("true")
    args = Path(task.package) / "args.json"
    for value in (
        str(made.path),
        {"path": str(made.checkpoints / "state_1.ckpt")},
        [{"path": f"{made.path}/"}],
    ):
        args.write_text(json.dumps({"init_from": value}))
        found = reason(made.path)
        assert found is not None and found.startswith("has the initial weights of task")
    assert reason(package(tmp_path / "runs", "other").path) is None
    for value in ("~no-such-user/a", "a\0b"):
        args.write_text(json.dumps({"init_from": value}))
        assert reason(made.path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_that_of_another_user_may_not(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    pid = os.fork()
    if pid == 0:
        os.environ["XDG_CACHE_HOME"] = os.environ["ROOST_STATE"] = "/nonexistent"
        os.setuid(65534)
        found = refusal(made.path)
        os._exit(0 if found is not None and "belongs to" in found.reason else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
