"""Tasks that only read a package: beside its training and each other, through kills, and in every command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import PENDING, RUNNING, STOPPED, SUCCEEDED, Task
from roost.operations import lab as labs
from roost.operations import resolve
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.keeping import prune, refusals, trash
from roost.operations.models.predict import PredictRequest, submit_predict
from roost.operations.queue import task_control
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.queue.why import why
from roost.operations.reading.show import show
from roost.operations.reading.verify import verify
from roost.package import session_folder, sessions
from roost.package.package import PackageFolder
from roost.package.results import predictions
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.project.predicting import predicting
from tests.waiting import wait_for

CPU = TaskOptions(gpus=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return predicting(tmp_path_factory.mktemp("project")).path


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lab = Lab(tmp_path / "lab")
    with lab.here():
        yield lab
    lab.close()


@pytest.fixture
def package(lab: Lab, trained: Path) -> Path:
    path = lab.folder / "runs" / "digits"
    shutil.copytree(trained, path)
    (path / "sessions" / "1.request.json").unlink()  # it names this process as the one that trains
    return path


def analyzer(package: Path, **given: Any) -> Task:
    (task,) = start_analyzer(AnalyzerRequest(package=package, **{"options": CPU, **given})).tasks
    return task


def prediction(package: Path, options: TaskOptions = CPU, **given: Any) -> Task:
    (task,) = submit_predict(PredictRequest(package=package, **{"source": "valid", **given}), options).tasks
    return task


def roost(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "roost", *arguments], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == code, done
    return done


def record(task: Task, session: int = 1) -> dict[str, Any]:
    return dict(json.loads((task.folder / "sessions" / f"{session}.json").read_bytes()))


def kill_watchers(task: Task, session: int = 1) -> None:
    """Kills guard and supervisor together, so that neither records the end of the other."""
    pids = [record(task, session)[name] for name in ("guard_pid", "pid")]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, signum)


# --- running


def test_several_run_beside_a_session_of_the_package(lab: Lab, package: Path) -> None:
    lock_fd = PackageFolder(package).lock()  # a training has it
    try:
        tasks = [analyzer(package) for _ in range(3)]
        for task in tasks:
            lab.wait_for(task.id, RUNNING)
    finally:
        os.close(lock_fd)
    assert [(task.label, task.name) for task in tasks] == [
        (f"A_{number}", f"digits/analyzers/{number}") for number in (1, 2, 3)
    ]
    assert [task.folder for task in tasks] == [package / "analyzers" / str(number) for number in (1, 2, 3)]
    assert not [*(package / "sessions").iterdir()], "it has no number of the package"
    request = sessions.load_json(tasks[0].folder / "request.json")
    assert request is not None and request["kind"] == "analyze" and request["package"] == str(package)
    assert (request["device"], request["checkpoint"], request["scripts"]) == ("cpu", None, None)
    for progress in task_control.stop_all([task.label for task in tasks]):
        assert progress.package == package and not progress.can_continue
    assert {lab.one(task.id).state for task in tasks} == {STOPPED}
    assert record(tasks[2])["reason"] == "signal"


def test_one_on_a_card_has_a_lease_of_it(lab: Lab, package: Path) -> None:
    task = analyzer(package, options=TaskOptions(gpus=1, memory_mb=4000))
    running = lab.wait_for(task.id, RUNNING)
    assert len(running.cards) == 1 and running.reserved_mb == 4000 and running.profile == ""
    (session,) = session_folder.open_folder(task.folder, package).sessions()
    assert session.request.cards == list(running.cards) and session.is_locked
    lab.ask(task.id, "kill")
    assert lab.wait_for(task.id).state == STOPPED


def test_a_daemon_that_was_killed_adopts_it(lab: Lab, package: Path) -> None:
    task = analyzer(package)
    lab.wait_for(task.id, RUNNING)
    before = record(task)
    lab.kill_daemon()
    lab.start()
    running = lab.wait_for(task.id, RUNNING)
    assert (running.attempt, running.session) == (1, 1) and record(task)["pid"] == before["pid"]
    lab.ask(task.id, "stop")
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.exit_code) == (STOPPED, 75)


def test_a_lost_attempt_starts_again_and_nothing_of_it_is_left(lab: Lab, package: Path) -> None:
    task = analyzer(package)
    lab.wait_for(task.id, RUNNING)
    worker = record(task)["worker_pid"]
    kill_watchers(task)
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    with lab.store() as store:
        again = wait_for(lambda: (one := store.task(task.id)).attempt == 2 and one.session == 2)
    assert again and record(task, 2)["state"] == "running"
    with lab.store() as store:
        reasons = [event.text for event in store.events(task=task.id, kind=PENDING)]
    assert "killed" in reasons[-1], reasons


def test_a_rebuilt_queue_has_them(lab: Lab, package: Path) -> None:
    running, ended, held = analyzer(package), prediction(package), analyzer(package)
    lab.wait_for(running.id, RUNNING)
    assert lab.wait_for(ended.id).state == SUCCEEDED
    task_control.request_stop(held.label)
    lab.wait_for(held.id, STOPPED)
    waits = analyzer(package, options=TaskOptions(gpus=0, begin="+2h"))
    lab.kill_daemon()
    for path in lab.state.glob("lab.db*"):
        path.unlink()
    labs.rebuild()
    found = {task.id: task for task in lab.tasks()}
    assert [found[one.id].state for one in (running, ended, held, waits)] == [
        RUNNING,
        SUCCEEDED,
        STOPPED,
        PENDING,
    ]
    for one in (running, ended, held, waits):
        again = found[one.id]
        assert (again.kind, again.package, again.session_folder) == (
            one.kind,
            str(package),
            one.session_folder,
        )
        assert again.label == one.label, "all are there, in the order of submission"
    lab.ask(running.id, "stop")
    assert lab.wait_for(running.id).state == STOPPED


# --- predictions


def test_a_queued_prediction_is_stored_in_its_session_folder(lab: Lab, package: Path) -> None:
    task = prediction(package, limit=30)
    assert task.label == "P_1" and task.folder == package / "predictions" / "1"
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.reason) == (SUCCEEDED, ""), (task.folder / "_output.txt").read_text()
    (shown,) = show(package).predictions
    assert (shown.number, shown.source, shown.samples) == (1, "valid", 30)
    meta = predictions.read(task.folder)
    assert meta is not None and all(
        (task.folder / one["file"]).is_file() for one in meta.values.values() if one
    )
    assert not (task.folder / predictions.UNFINISHED).exists()
    findings = {one.path: one.verdict for one in verify(package) if one.what == "prediction"}
    names = {"meta.json", "predictions.jsonl", "_output.txt", "request.json", "sessions/1.json"}
    assert findings.keys() >= {f"predictions/1/{name}" for name in names} and {*findings.values()} == {"good"}
    with (task.folder / "_output.txt").open("a") as file:
        file.write("more")
    bad = [one.path for one in verify(package) if one.is_bad]
    assert [path for path in bad if path.startswith("predictions")] == ["predictions/1/_output.txt"]
    with pytest.raises(UsageError, match="-o"):
        prediction(package, out=package.parent / "elsewhere")
    failed = lab.wait_for(prediction(package, source="tets").id)
    assert failed.state == "failed" and "'tets'" in failed.reason
    assert [one.number for one in show(package).predictions] == [1]


def test_a_lost_prediction_begins_again_and_is_whole(lab: Lab, package: Path) -> None:
    task = prediction(package)
    lab.wait_for(task.id, RUNNING)
    kill_watchers(task)
    (task.folder / predictions.UNFINISHED).mkdir(exist_ok=True)
    (task.folder / predictions.UNFINISHED / "half.npy").write_bytes(b"half")
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.attempt, ended.session) == (SUCCEEDED, 2, 2), ended
    meta = predictions.read(task.folder)
    assert meta is not None and meta.count == 40 and not [*task.folder.glob("**/half.npy")]


# --- names


def test_every_command_takes_a_label(lab: Lab, package: Path) -> None:
    task = analyzer(package, options=TaskOptions(gpus=0, begin="+2h"))
    assert roost("priority", "A_1", "5").stderr and lab.one(task.id).priority == 5
    roost("hold", "A_1")
    assert lab.one(task.id).held
    roost("release", "A_1")
    assert not lab.one(task.id).held
    explained = roost("why", "A_1").stdout
    assert explained.startswith("A_1 digits/analyzers/1: ") and str(task.folder.name) in explained
    roost("stop", "A_1")
    assert lab.one(task.id).state == STOPPED
    task = analyzer(package)
    lab.wait_for(task.id, RUNNING)
    wait_for(lambda: (task.folder / "_output.txt").stat().st_size)
    assert roost("logs", "A_2").stdout.encode() == (task.folder / "_output.txt").read_bytes()
    assert roost("logs", str(task.folder)).stdout == roost("logs", task.id).stdout
    (row,) = [one for one in json.loads(roost("tasks", "--json").stdout) if one["id"] == task.id]
    assert (row["label"], row["kind"], row["session_folder"]) == ("A_2", "analyze", str(task.folder))
    assert "A_2" in roost("tasks").stdout
    assert roost("show", "A_2").stdout == roost("show", str(package)).stdout
    assert "digits" in roost("du", "A_2").stdout
    following = subprocess.Popen(
        [sys.executable, "-m", "roost", "attach", "A_2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stderr is not None
    first = following.stderr.readline()
    roost("kill", "A_2")
    said = first + following.communicate(timeout=100)[1]
    assert following.returncode == 130 and "digits/analyzers/2" in said and "roost continue" not in said, said
    assert why("A_2")[0].state == STOPPED and not why("A_2")[0].can_go_on
    refused = roost("attach", "A_2", code=5)
    assert "does not run" in refused.stderr


def test_names_of_a_package_do_not_mean_its_readers(lab: Lab, package: Path, messages: Messages) -> None:
    task = analyzer(package)
    lab.wait_for(task.id, RUNNING)
    for text in ("digits", str(package), "runs/digits"):
        with pytest.raises(NotFound):
            resolve.find_tasks(text)
    assert resolve.unfinished_tasks(package) == [] and resolve.unfinished_task(task.folder) is not None
    for text in ("digits/analyzers/1", "runs/digits/analyzers/1", str(task.folder), "A_1", task.id):
        assert [one.id for one in resolve.find_tasks(text)] == [task.id], text
        assert resolve.find_session_folder(text).path == task.folder, text
        assert resolve.find_package(text) == package, text
    with pytest.raises(NotFound) as refused:
        resolve.find_tasks("T_1")
    messages.check(str(refused.value))
    (row,) = list_tasks()
    assert (row.label, row.name, row.package) == ("A_1", "digits/analyzers/1", str(package))


# --- keeping


def test_a_package_that_is_read_is_not_removed(lab: Lab, package: Path, messages: Messages) -> None:
    waits = analyzer(package, options=TaskOptions(gpus=0, begin="+2h"))
    refusal = refusals.find_refusals([package])[0]
    messages.check(str(refusal).replace(str(package), "<package>"))
    task_control.request_stop(waits.id)
    task = analyzer(package)
    lab.wait_for(task.id, RUNNING)
    with pytest.raises(Refused, match="A_2"):
        trash.plan_removal([str(package)])
    with pytest.raises(Refused, match="A_2"):
        prune.plan([str(package)], prune.checked_request("last", weights_only=False, records_only=False))
    for word in ("A_2", str(task.folder)):
        with pytest.raises(UsageError, match="analyzer A_2") as refused:
            trash.plan_removal([word])
    messages.check(str(refused.value).replace(str(package), "<package>"))
    lab.ask(task.id, "stop")
    lab.wait_for(task.id)
    assert refusals.find_refusals([package]) == []
    (removed,) = trash.plan_removal([str(package)])
    assert removed.path == package


# --- bad requests


def test_what_is_refused_leaves_nothing(lab: Lab, package: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"checkpoint": 99},
        {"checkpoint": "lst"},
        {"checkpoint": 2, "untrained": True},
        {"scripts": Path("none")},
        {"options": TaskOptions(gpus=2)},
        {"options": TaskOptions(gpus=0, strategy="ddp")},
        {"options": TaskOptions(gpus=0, max_parallel=2)},
        {"options": TaskOptions(gpus=0, after=("none",))},
        {"options": TaskOptions(gpus=0, cpus=4000)},
    ]
    for given in wrong:
        with pytest.raises(RoostError):
            analyzer(package, **given)
    with pytest.raises(NotFound):
        analyzer(package.parent / "none")
    (package / "analyzers").write_text("in the way")
    with pytest.raises(Refused):
        analyzer(package)
    (package / "analyzers").unlink()
    assert lab.tasks() == []
