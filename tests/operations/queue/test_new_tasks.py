"""What is queued, and what is not; a real daemon runs it where a test waits for an end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.errors import Refused, RoostError
from roost.devices.resource_request import TaskOptions
from roost.lab.queue import package_roots, task_file
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import SUCCEEDED, Task
from roost.operations import lab
from roost.operations.queue import new_tasks
from roost.operations.queue.new_tasks import require_unqueued
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST
from tests.lab.labs import Lab, submit_command, two_card_lab
from tests.lab.queued import task
from tests.messages import Messages
from tests.operations.packages import project


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Lab]:
    with two_card_lab(tmp_path) as here:
        yield here


def later(**given: object) -> TaskOptions:
    """It waits for longer than any test."""
    return TaskOptions(begin=str(time.time() + 3600), **given)  # type: ignore[arg-type]


def test_what_could_not_be_queued_is_removed_again(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    folder = tmp_path / "p\udcff"  # bytes that the queue cannot hold, and a package can
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(Refused) as refused:
        submit_command(["true"], later())
    messages.check(refused.value)
    assert list((folder / "runs").iterdir()) == [] and here.tasks() == []


def failing(error: BaseException) -> Callable[[], None]:
    """A start of the daemon that succeeds before the packages are made, and fails afterwards."""
    calls = iter([None, error])

    def ensure_daemon() -> None:
        if (now := next(calls)) is not None:
            raise now

    return ensure_daemon


@pytest.mark.parametrize(
    "error",
    [RoostError("no daemon", fix="try again"), OSError("no process"), KeyboardInterrupt()],
)
def test_what_is_queued_is_reported_though_the_daemon_does_not_start_then(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages, error: BaseException
) -> None:
    monkeypatch.setattr(lab, "ensure_daemon", failing(error))
    found = submit_command(["true"], TaskOptions(gpus=0))
    assert [task.id for task in found.tasks] == [task.id for task in here.tasks()]
    messages.check(found.notes)
    monkeypatch.undo()
    with here.here():
        lab.start()
    assert here.wait_for(found.tasks[0].id).state == SUCCEEDED


def test_an_error_right_after_the_commit_leaves_the_task_and_its_id(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    def committed(store: QueueStore, tasks: Sequence[Task]) -> None:
        really(store, tasks)
        raise RoostError("the disk is full")

    really = QueueStore.submit
    monkeypatch.setattr(QueueStore, "submit", committed)
    found = submit_command(["true"], later())
    assert [task.id for task in found.tasks] == [task.id for task in here.tasks()]
    assert PackageFolder.open(found.tasks[0].package)
    messages.check(found.notes)


def test_what_waits_for_a_task_that_failed_is_refused(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    (first,) = submit_command(["false"], TaskOptions(gpus=0)).tasks
    (good,) = submit_command(["true"], TaskOptions(gpus=0)).tasks
    assert [here.wait_for(task.id).state for task in (first, good)] == ["failed", "succeeded"]
    with pytest.raises(Refused) as refused:
        submit_command(["true"], TaskOptions(after=[first.id]))
    assert refused.value.setting == "--after"
    assert all(fact in str(refused.value) for fact in ("failed", "--after-any"))
    messages.check(refused.value.fix)
    (third,) = submit_command(["true"], TaskOptions(after=[good.id])).tasks
    assert here.wait_for(third.id).state == SUCCEEDED and len(here.tasks()) == 3


def test_the_name_of_a_package_that_a_task_waits_with_is_taken_though_it_was_removed(
    here: Lab, messages: Messages
) -> None:
    (task,) = submit_command(["true"], later(), name="mine").tasks
    durable.remove_folder(Path(task.package))
    with pytest.raises(Refused) as refused:
        submit_command(["true"], later(), name="mine")
    assert "pending" in refused.value.detail and f"`roost stop {task.id}`" in str(refused.value.fix)
    messages.check(str(refused.value).replace(task.id, "<id>"))
    assert len(here.tasks()) == 1 and not Path(task.package).exists()


def test_a_task_with_cores_has_as_many_threads_unless_the_environment_sets_them(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    asked = ["sh", "-c", 'echo "$OMP_NUM_THREADS"']
    (task,) = submit_command(asked, TaskOptions(gpus=0, cpus=1)).tasks
    assert task.plan["own_env"]["OMP_NUM_THREADS"] == "1"
    here.wait_for(task.id)
    assert PackageFolder.open(task.package).output.read_text() == "1\n"
    (task,) = submit_command(asked, later()).tasks
    assert "OMP_NUM_THREADS" not in task.plan["own_env"]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (task,) = submit_command(asked, TaskOptions(gpus=0, cpus=1, begin=str(time.time() + 3600))).tasks
    assert task.plan["env"]["OMP_NUM_THREADS"] == "7" and "OMP_NUM_THREADS" not in task.plan["own_env"]


@pytest.mark.parametrize("stored", ["runs/mine", "way/mine", "other", "twice/../runs/mine"])
@pytest.mark.parametrize("asked", ["runs/mine", "way/mine", "other"])
def test_a_package_is_the_same_by_whatever_way(tmp_path: Path, stored: str, asked: str) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "twice").mkdir()
    (tmp_path / "way").symlink_to("runs")
    (tmp_path / "other").symlink_to("runs/mine")
    with lab.open_queue() as store:
        store.submit([one := task(package=str(tmp_path / stored))])
    require_unqueued(tmp_path / "runs" / "mine2")
    with pytest.raises(Refused, match=one.id):
        require_unqueued(tmp_path / asked)


def test_many_that_wait_are_asked_for_once_and_their_folder_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.open_queue() as store:
        store.submit([task(package=str(tmp_path / "runs" / f"n{number}")) for number in range(100)])
    looked: list[str] = []
    real = os.scandir

    def scandir(folder: str) -> Any:
        looked.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    require_unqueued(tmp_path / "runs" / "mine")
    assert looked == [str(tmp_path / "runs")]


@pytest.mark.parametrize("what", ["command", pytest.param("training", marks=pytest.mark.soak)])
def test_of_many_who_ask_for_a_name_at_the_same_time_one_has_it(here: Lab, tmp_path: Path, what: str) -> None:
    """No daemon lives: each has looked whether the name is free long before the first one has it."""
    asked = ["--", "true"] if what == "command" else [str(project(tmp_path / "project"))]
    line = [*ROOST, "submit", "--name", "mine", "--begin", "+1h", *asked]
    several = [
        subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ended = [(one.communicate()[1], one.returncode) for one in several]
    assert sorted(code for _, code in ended) == [0, Refused.exit_code, Refused.exit_code], ended
    refused = [said for said, code in ended if code == Refused.exit_code]
    assert all("--name: " in said for said in refused), refused
    (task,) = here.tasks()
    found = [one.name for one in Path(task.package).parent.iterdir() if not one.name.startswith(".")]
    assert (task.name, found) == ("mine", ["mine"])


def test_where_packages_lie_is_known_before_they_tell_of_a_task(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = here.task("exit 0")

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(task_file, "announce", killed)
    with pytest.raises(KeyboardInterrupt):
        new_tasks.enqueue([made])
    assert package_roots.read(here.state) == [Path(made.package).parent]
