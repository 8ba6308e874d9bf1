"""Packages that are made and queued; a real daemon runs them where a test waits for their end."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.base.system import state_folder
from roost.config import layers
from roost.devices.resource_request import TaskOptions
from roost.lab.background import daemon_presence
from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.queue import task_file
from roost.lab.queue.task import PENDING, STOP, SUCCEEDED
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.queue.submit import SubmitRequest, check_requests, submit, submit_continue
from roost.operations.queue.why import why
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.project.staging import package_archives
from tests.dlnest_project import dlnest_project
from tests.lab.labs import Lab, two_card_lab
from tests.messages import Messages
from tests.operations.packages import package, project


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Lab]:
    with two_card_lab(tmp_path) as here:
        yield here


def later(**given: object) -> TaskOptions:
    """It waits for longer than any test."""
    return TaskOptions(begin=str(time.time() + 3600), **given)  # type: ignore[arg-type]


def stopped(tmp_path: Path) -> PackageFolder:
    return package(tmp_path / "runs", state="stopped")


def test_a_training_runs_on_a_card_of_the_lab_goes_further_there_and_leaves_no_secret_behind(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    config = project(tmp_path / "project", max_epochs="1")
    request = SubmitRequest(
        config=config,
        overrides=["limits.wall_time=10min"],
        description="a try",
        options=TaskOptions(priority=3),
        command=["roost", "submit"],
    )
    (task,) = submit(request).tasks
    assert (task.need.cards, task.need.time_limit, task.priority, task.sweep) == (1, 600.0, 3, None)
    assert MemoryFeatures.from_text(task.profile).code and task.scale == 32.0
    made = PackageFolder.open(task.package)
    assert made.path.parent == tmp_path / "project" / "runs" and made.request["description"] == "a try"
    assert here.wait_for(task.id).state == SUCCEEDED, made.output.read_text()
    going_on = ContinueRequest(package=made.path, overrides=["max_epochs=2"])
    (further,) = submit_continue(going_on, TaskOptions()).tasks
    assert (further.profile, further.scale) == (task.profile, task.scale)
    assert here.wait_for(further.id).state == SUCCEEDED, made.output.read_text()
    assert made.settings["max_epochs"] == 2 and made.records().rows[-1]["epoch"] == 2
    session = made.sessions()[0]
    assert session.request["cards"] == ["SIM-0"] and session.request["task"] == task.id
    files = [path for path in made.path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]


def test_a_sweep_is_an_array_called_by_what_varies(here: Lab, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    request = SubmitRequest(
        config=config,
        overrides=["optimizers.main.lr=0.1,0.01", "max_epochs=1", "seed=0..1"],
        name="try",
        options=later(max_parallel=2),
    )
    found = submit(request).tasks
    names = [f"try_lr-{lr}_seed-{seed}" for lr in ("0.1", "0.01") for seed in (0, 1)]
    assert [task.name for task in found] == names
    assert len({task.sweep for task in found}) == 1 and found[0].sweep is not None
    assert {task.sweep_name for task in found} == {"try"} and len(here.store().find_all("try")) == 4
    assert {task.most_parallel for task in found} == {2} and {task.state for task in found} == {PENDING}
    assert [task.id for task in here.tasks()] == [task.id for task in found]
    assert [PackageFolder.open(task.package).args["seed"] for task in found] == [0, 1, 0, 1]
    assert {task.plan["own_env"]["PYTHONHASHSEED"] for task in found} == {"0"}


@pytest.mark.parametrize(
    ("overrides", "wanted", "error", "setting", "fact"),
    [
        (
            ["optimizers.main.lr=[0.1,0.01]"],
            later(),
            ConfigError,
            "optimizers.main.lr",
            "optimizers.main.lr=0.1,0.01",
        ),
        (["max_epochs=1,-3"], later(), ConfigError, "max_epochs", " -3 "),
        (["seed=2..1"], later(), UsageError, "seed", "'2..1'"),
        ([], later(max_parallel=2), UsageError, None, "--max-parallel"),
        (["optimizers.main.lr=0.1,abc"], later(), ConfigError, "optimizers.main.lr", "'abc'"),
        (["devices=1,3"], later(), Refused, None, "3 cards"),
        ([], TaskOptions(gpus=99), Refused, None, "99 cards"),
        ([], TaskOptions(gpus=1, memory_mb=30_000), Refused, None, "23.5 GB"),
        ([], TaskOptions(priority=10**7), UsageError, "--priority", "10000000"),
        ([], TaskOptions(begin="1.0"), UsageError, "--begin", "'1970-01-01 "),
        ([], TaskOptions(after=("0000",)), NotFound, None, "'0000'"),
        (["step_mode=dry"], later(), Refused, "step_mode", "'dry'"),
        ([], later(strategy="ddp"), UsageError, None, "--gpus 2"),
        (["strategy=ddp"], later(), UsageError, None, "--gpus 2"),
    ],
)
def test_mistakes_are_reported_before_anything_is_made(
    here: Lab,
    tmp_path: Path,
    overrides: list[str],
    wanted: TaskOptions,
    error: type[RoostError],
    setting: str | None,
    fact: str,
    messages: Messages,
) -> None:
    config = project(tmp_path / "project")
    with pytest.raises(error) as refused:
        submit(SubmitRequest(config=config, overrides=overrides, options=wanted))
    assert refused.value.setting == setting and fact in str(refused.value)
    messages.check(refused.value.fix if setting == "--begin" else refused.value)  # which says how long ago
    assert not (tmp_path / "project" / "runs").exists() and here.tasks() == []
    assert daemon_presence.find_daemon(state_folder.lab_folder()) is None


def test_an_archive_that_is_not_there_is_reported_before_anything_is_made(here: Lab, tmp_path: Path) -> None:
    """Unless another task precedes, which may make it."""
    config = project(tmp_path / "project", max_epochs="1")
    missing = SubmitRequest(config=config, overrides=["data.stage=no.tar"], options=later())
    with pytest.raises(NotFound, match=r"no\.tar") as refused:
        submit(missing)
    assert refused.value.setting == "data.stage"
    assert not (tmp_path / "project" / "runs").exists()
    [before] = submit(SubmitRequest(config=config, options=later())).tasks
    dependent = dataclasses.replace(missing, options=later(after=(before.id,)))
    assert len(submit(dependent).tasks) == 1


def test_the_archives_of_a_sweep_are_looked_for_once_each(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, looked = project(tmp_path / "project", max_epochs="1"), list[Any]()
    monkeypatch.setattr(
        package_archives, "require_present", lambda stage, **_: looked.append(stage)
    )  # which may ask a server
    overrides = ["data.stage=a.tar,b.tar", "seed=1,2,3"]
    assert len(submit(SubmitRequest(config=config, overrides=overrides, options=later())).tasks) == 6
    assert looked == ["a.tar", "b.tar"]


def test_a_name_that_is_taken(here: Lab, tmp_path: Path) -> None:
    request = SubmitRequest(config=project(tmp_path / "project"), name="one", options=later())
    submit(request)
    with pytest.raises(Refused, match=r"roost submit continue .*/runs/one"):
        submit(request)
    assert len(here.tasks()) == 1 and len(list((tmp_path / "project" / "runs").iterdir())) == 1


def test_of_a_sweep_that_cannot_be_made_whole_nothing_stays(here: Lab, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    (tmp_path / "project" / "full").write_text("no folder can be made here")
    request = SubmitRequest(config=config, overrides=["save_root=runs,full/runs"], options=later())
    with pytest.raises(OSError, match="full"):
        submit(request)
    assert list((tmp_path / "project" / "runs").iterdir()) == [] and here.tasks() == []


def test_a_sweep_reads_its_files_once_and_reports_progress(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    looks: list[str] = []
    for module, name in ((snapshot, "select"), (layers, "load_files")):
        whole = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, whole=whole, name=name, **k: looks.append(name) or whole(*a, **k)
        )
    heard: list[str] = []
    request = SubmitRequest(config=project(tmp_path / "project"), overrides=["seed=0..2"], options=later())
    submit(request, report=heard.append)
    assert looks == ["load_files", "select"]
    assert [re.findall(r"\d+", text) for text in heard] == [[str(n), "3"] for n in (1, 2, 3, 2, 3)]
    messages.check("; ".join(heard))


def test_the_next_session_of_a_package_is_queued_once(here: Lab, tmp_path: Path) -> None:
    made = stopped(tmp_path)
    request = ContinueRequest(package=made.path, overrides=["max_epochs=9"], description="further")
    found = submit_continue(request, later(priority=1))
    (task,) = found.tasks
    assert task.package == str(made.path) and len(made.sessions()) == 1
    assert task.plan["request"]["overrides"] == ["max_epochs=9"] and task.need.cards == 1
    assert any(note.endswith("max_epochs: 12 -> 9") for note in found.notes)
    assert (made.path / "_desc: further").is_file()
    with pytest.raises(Refused, match=task.id):
        submit_continue(request, later())
    assert len(here.tasks()) == 1 and len(task_file.read_all(made.path)) == 1


def test_of_two_who_queue_the_same_package_at_once_one_is_refused(here: Lab, tmp_path: Path) -> None:
    request = ContinueRequest(package=stopped(tmp_path).path)

    def one() -> bool:
        try:
            submit_continue(request, later())
        except Refused:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        done = [pool.submit(one) for _ in range(4)]
    assert sorted(future.result() for future in done) == [False, False, False, True]
    assert len(here.tasks()) == 1


def test_a_daemon_of_another_version_is_reported_before_anything_is_made(here: Lab, tmp_path: Path) -> None:
    here.start()
    about = here.state / "daemon.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "version": "0.0.0"}))
    with pytest.raises(Refused, match=r"0\.0\.0"):
        submit(SubmitRequest(config=project(tmp_path / "project"), options=later()))
    assert here.tasks() == [] and not (tmp_path / "project" / "runs").exists()


def test_what_may_not_go_on_is_not_queued(here: Lab, tmp_path: Path, messages: Messages) -> None:
    made = stopped(tmp_path)
    request = ContinueRequest(package=made.path, overrides=["model.features=9"])
    with pytest.raises(Refused, match=r"model\.features: 8 -> 9"):
        submit_continue(request, later())
    with pytest.raises(UsageError, match="--max-parallel"):
        submit_continue(request, later(max_parallel=1))
    done = package(tmp_path / "other", state="succeeded")
    with pytest.raises(Refused) as refused:
        submit_continue(ContinueRequest(package=done.path), later())
    assert "max_epochs=" in str(refused.value)
    assert refused.value.where == done.path
    messages.check(refused.value)
    with pytest.raises(Refused, match="max_epochs=2") as refused:
        submit_continue(ContinueRequest(package=done.path, overrides=["max_epochs=2"]), later())
    assert "roost submit continue" in str(refused.value.fix) and "max_epochs=6" in str(refused.value.fix)
    lock_fd = made.lock()
    try:
        running = ContinueRequest(package=made.path)
        made.new_session({"kind": "train", "overrides": [], "device": "auto"})
        with pytest.raises(Refused, match="session 2") as refused:
            submit_continue(running, later())
        assert refused.value.where == made.path
    finally:
        os.close(lock_fd)
    assert here.tasks() == [] and task_file.read_all(made.path) == []


def test_a_ticket_of_what_could_not_be_queued_is_removed(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "r\udcff", state="stopped")
    with pytest.raises(Refused) as refused:
        submit_continue(ContinueRequest(package=made.path), later())
    messages.check(refused.value)
    assert made.path.is_dir() and not list((made.path / "sessions").glob("task-*"))


def test_the_cards_are_those_of_the_session_before(tmp_path: Path) -> None:
    made = stopped(tmp_path)
    computing = {"device": "cpu", "devices": 2, "strategy": "ddp", "ranks": 2}
    made.new_session({"kind": "train", "overrides": [], **computing, "cards": ["SIM-0", "SIM-1"]})
    (task,) = submit_continue(ContinueRequest(package=made.path), later()).tasks
    assert task.need.cards == 2 and task.plan["request"]["ranks"] == 2
    other = package(tmp_path / "cpu", state="stopped")
    other.new_session({"kind": "train", "overrides": [], **computing})
    (task,) = submit_continue(ContinueRequest(package=other.path), later()).tasks
    assert task.need.cards == 0 and task.plan["request"]["ranks"] == 2


def test_what_is_checked_before_is_each_value_of_a_sweep_but_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project(tmp_path / "project")
    asked = SubmitRequest(
        config=config, overrides=["seed=3..5", "max_epochs=1,2"], options=TaskOptions(gpus=0)
    )
    found = check_requests(asked)
    assert [one.overrides for one in found] == [("seed=3", "max_epochs=1"), ("seed=3", "max_epochs=2")]
    assert {one.device for one in found} == {"cpu"}
    monkeypatch.delenv("ROOST_DEVICES")
    (one,) = check_requests(SubmitRequest(config=config))
    assert one.device == "auto"


def test_a_continued_task_keeps_its_memory_unless_an_option_sets_it(
    here: Lab, tmp_path: Path, messages: Messages
) -> None:
    asked = ContinueRequest(package=stopped(tmp_path).path)

    def need(**given: object) -> tuple[int | None, bool, list[str]]:
        found = submit_continue(asked, later(gpus=1, **given))
        (task,) = found.tasks
        with here.store() as store:
            store.request_stop(task.id, STOP)
        return task.need.memory_mb, task.need.whole, list(found.notes)

    assert need() == (None, False, [])
    assert need(memory_mb=4000) == (4000, False, [])
    memory_mb, whole, (note,) = need()
    assert (memory_mb, whole) == (4000, False) and all(fact in note for fact in ("3.9 GB", "-m", "--whole"))
    messages.check(note)
    assert need(whole=True) == (None, True, [])
    memory_mb, whole, (note,) = need()
    assert (memory_mb, whole) == (None, True) and "-m" in note
    messages.check(note)
    assert need(memory_mb=5000) == (5000, False, [])


def test_a_continued_task_keeps_its_cores_unless_an_option_sets_them(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    asked = ContinueRequest(package=stopped(tmp_path).path)

    def cores(*, cards: int = 0, given: int | None = None) -> tuple[int | None, str | None, list[str]]:
        found = submit_continue(asked, later(gpus=cards, cpus=given))
        (task,) = found.tasks
        with here.store() as store:
            store.request_stop(task.id, STOP)
        return task.need.cores, task.plan["own_env"].get("OMP_NUM_THREADS"), list(found.notes)

    assert cores() == (None, None, [])
    assert cores(given=1) == (1, "1", [])
    found, threads, (note,) = cores()
    assert (found, threads) == (1, "1") and "1 core" in note and "--cpus" in note
    messages.check(note)
    assert cores(cards=1) == (None, None, []), "it has cards, and no cores of its own"
    assert cores() == (None, None, [])


def test_a_sweep_over_keys_of_a_project_of_dlnest(here: Lab, tmp_path: Path) -> None:
    """Its values are those of the user's own keys, and of roost's."""
    config = dlnest_project(tmp_path / "project")
    request = SubmitRequest(
        config=config, overrides=["model.lr=0.1,0.01", "roost.seed=0..1"], name="try", options=later()
    )
    found = submit(request).tasks
    assert [task.name for task in found] == [
        f"try_lr-{lr}_seed-{seed}" for lr in ("0.1", "0.01") for seed in (0, 1)
    ]
    args = [PackageFolder.open(task.package).args for task in found]
    assert [(one["model"]["lr"], one["roost"]["seed"]) for one in args] == [
        (0.1, 0), (0.1, 1), (0.01, 0), (0.01, 1)
    ]  # fmt: skip
    assert {PackageFolder.open(task.package).request["kind"] for task in found} == {"dlnest"}
    assert [one.overrides for one in check_requests(request)] == [
        ("model.lr=0.1", "roost.seed=0"),
        ("model.lr=0.01", "roost.seed=0"),
    ]
    # The seed does not change the memory of a run, a key of the user may.
    assert len({task.profile for task in found}) == 2
    (explained,) = why(found[0].id)
    assert explained.package == found[0].package and explained.command == []


def test_its_time_limit_is_a_setting_of_roost(here: Lab, tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "project", limits="mine")
    for overrides in (["roost.limits.wall_time=10min"], ["limits.wall_time=10min"]):
        request = SubmitRequest(config=config, overrides=overrides, options=later())
        if overrides[0].startswith("roost"):
            (task,) = submit(request).tasks
            assert task.need.time_limit == 600.0
            assert PackageFolder.open(task.package).args["limits"] == "mine"
        else:
            with pytest.raises(ConfigError):  # limits is a text of the user
                submit(request)
