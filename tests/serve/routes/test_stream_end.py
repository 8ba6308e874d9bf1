from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.queue import task_file
from roost.lab.queue.task import PENDING, Task
from roost.package.package import PackageFolder
from roost.serve.routes import stream_end
from roost.serve.routes.stream_end import StreamEndDetector, is_run_over
from tests.lab import queued
from tests.lab.labs import Lab
from tests.waiting import wait_for


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def run(lab: Lab, *states: str) -> PackageFolder:
    """One whose sessions are in these states."""
    path = queued.package(lab.folder / "run")
    for number, state in enumerate(states, 1):
        asked = {"state": state} if state != "starting" else {"state": state, "pid": None}
        (path / "sessions" / f"{number}.request.json").write_text(json.dumps(asked))
    return PackageFolder.open(path)


def of_task(lab: Lab, package: PackageFolder) -> Task:
    task = queued.task(package=str(package.path))
    task_file.write(task, lab.state)
    with lab.store() as store:
        store.submit([task])
    return task


def test_without_a_task_the_last_session_decides(lab: Lab) -> None:
    assert not is_run_over(run(lab)), "one may begin"
    assert not is_run_over(run(lab, "failed", "starting"))
    assert is_run_over(run(lab, "failed", "succeeded"))
    assert not lab.state.exists(), "reading creates no queue"


@pytest.mark.parametrize("states", [(), ("failed",)])
def test_a_task_that_waits_may_begin_another_session(lab: Lab, states: tuple[str, ...]) -> None:
    package = run(lab, *states)
    task = of_task(lab, package)
    (lab.folder / "link").symlink_to(package.path)
    for path in (package.path, lab.folder / "link"):
        assert not is_run_over(PackageFolder.open(path))
    lab.ask(task.id, "stop")
    assert is_run_over(package)


def test_the_tickets_of_a_copy_are_those_of_another(lab: Lab) -> None:
    package = run(lab)
    of_task(lab, package)
    shutil.copytree(package.path, lab.folder / "copy")
    assert is_run_over(PackageFolder.open(lab.folder / "copy"))


def test_a_lost_queue_may_be_created_again(lab: Lab) -> None:
    package = run(lab)
    task_file.write(queued.task(package=str(package.path), state=PENDING), lab.state)
    assert not is_run_over(package)


def test_a_removed_package_is_over(lab: Lab) -> None:
    package = run(lab)
    shutil.rmtree(package.path)
    assert is_run_over(package)


def test_a_stream_has_ended_when_nothing_has_come_for_a_moment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_end, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(stream_end, "_CHECK_SECONDS", 0.0)
    package = run(lab, "succeeded")
    detector = StreamEndDetector(lambda: is_run_over(package))
    assert not detector.has_ended
    wait_for(lambda: detector.has_ended)
    assert detector.has_ended
    detector.data_arrived()
    assert not detector.has_ended
