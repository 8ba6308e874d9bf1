"""The copies of tasks in their packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base import durable
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import task_file
from roost.lab.queue.task import FAILED, Task
from roost.package import session_folder
from roost.package.kinds import TaskKind
from tests.lab.queued import PLAN, package, task
from tests.messages import Messages

LAB = Path("/nowhere/lab")


def without_environment(task: Task) -> Task:
    return msgspec.structs.replace(task, plan={"argv": PLAN["argv"]})


def of(folder: Path) -> list[Task]:
    return [one.task for one in task_file.read_all(folder)]


def test_all_but_what_it_holds_is_read_again(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    need = ResourceRequest(cards=2, memory_mb=4000, time_limit=60.0)
    given = task(package=str(folder), need=need, after=("a",), begin=5.0, held=True, sweep="s", scale=2.0)
    task_file.write(msgspec.structs.replace(given, cards=("GPU-0",), reserved_mb=9), LAB)
    assert of(folder) == [without_environment(given)]


def test_tasks_in_session_folders_are_found_and_belong_to_their_package(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    made = session_folder.create(folder, TaskKind.PREDICT, {})
    given = task(package=str(folder), kind="predict", session_folder=str(made.path), name="p/predictions/1")
    task_file.write(given, LAB)
    assert of(folder) == [without_environment(given)] and task_file.exists(given)
    task_file.announce(second := task(**{**msgspec.structs.asdict(given), "id": "02"}), LAB)
    assert [path.parent.parent for path in task_file.unconfirmed_files(folder)] == [made.path]
    task_file.confirm(second)
    assert [one.id for one in of(folder)] == sorted([given.id, "02"], key=lambda id: f"task-{id}.json")
    shutil.copytree(folder, tmp_path / "copy")
    copies = task_file.read_all(tmp_path / "copy")
    assert [(one.task.session_folder, one.is_original) for one in copies] == [
        (str(tmp_path / "copy" / "predictions" / "1"), False)
    ] * 2
    said: list[str] = []
    (path,) = made.session_files.glob(f"task-{given.id}.json")
    for wrong in ("train", "analyze", "of a later version"):
        path.write_text(path.read_text().replace('"kind": "predict"', f'"kind": "{wrong}"'))
        assert [one.task.id for one in task_file.read_all(folder, said.append)] == ["02"]
        path.write_text(path.read_text().replace(f'"kind": "{wrong}"', '"kind": "predict"'))
    assert len(said) == 3


def test_one_of_an_older_roost_is_a_training_or_a_command(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    for plan, kind in ((PLAN, "train"), ({**PLAN, "is_command": True}, "command")):
        task_file.write(task(id="01", package=str(folder), kind=kind, plan=plan), LAB)
        path = folder / "sessions" / "task-01.json"
        body = json.loads(path.read_text())
        del body["kind"], body["session_folder"]
        path.write_text(json.dumps(body))
        assert [one.kind for one in of(folder)] == [kind]


def test_the_sweep_of_one_of_the_first_queue_has_another_name(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    task_file.write(task(package=str(folder), sweep="s"), LAB)
    (path,) = (folder / "sessions").glob("task-*")
    path.write_text(path.read_text().replace('"sweep"', '"array"'))
    assert [one.sweep for one in of(folder)] == ["s"]


def test_it_is_its_owners_alone_never_holds_the_environment_and_no_plan_in_the_end(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    task_file.write(given, LAB)
    (path,) = (folder / "sessions").glob("task-*")
    assert path.stat().st_mode & 0o777 == 0o600
    assert of(folder)[0].plan == {"argv": PLAN["argv"]}
    assert b"PATH" not in path.read_bytes()
    task_file.write(msgspec.structs.replace(given, state=FAILED), LAB)
    assert path.stat().st_mode & 0o777 == 0o600
    assert of(folder)[0].plan == {}


def test_staging_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    final = folder / "sessions" / f"task-{given.id}.json"
    left, other = durable.staging_name(final), durable.staging_name(final.with_name("2.json"))
    for path in (left, other):
        path.write_text("half of i")
    task_file.write(given, LAB)
    assert of(folder) == [without_environment(given)]
    assert not left.exists() and other.exists(), "a live process may be writing that one"


def test_it_is_removed_where_the_task_was_not_queued(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    task_file.write(given, LAB)
    task_file.remove(given)
    assert not any((folder / "sessions").iterdir())
    task_file.remove(given)


def test_a_package_has_several_and_a_copy_says_so(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = [task(package=str(folder)) for _ in range(2)]
    for one in given:
        task_file.write(one, LAB)
    assert sorted(of(folder), key=lambda task: task.id) == sorted(
        map(without_environment, given), key=lambda task: task.id
    )
    assert all(one.is_original for one in task_file.read_all(folder))
    shutil.copytree(folder, tmp_path / "copy")
    copies = task_file.read_all(tmp_path / "copy")
    assert [one.is_original for one in copies] == [False, False]
    assert {one.task.package for one in copies} == {str(tmp_path / "copy")}


def test_an_announced_task_does_not_count_until_it_is_queued(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    assert not task_file.exists(given)
    task_file.announce(given, LAB)
    assert task_file.exists(given) and of(folder) == []
    assert [path.name for path in task_file.unconfirmed_files(folder)] == [f"task-{given.id}.coming"]
    task_file.confirm(given)
    task_file.confirm(given)
    assert task_file.exists(given) and of(folder) == [without_environment(given)]
    assert not list(task_file.unconfirmed_files(folder)) and len(list((folder / "sessions").iterdir())) == 1
    task_file.remove(given)
    assert not task_file.exists(given)


def test_a_newer_file_is_not_replaced_by_the_announced_one(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    task_file.announce(given, LAB)
    task_file.write(msgspec.structs.replace(given, state=FAILED), LAB)
    task_file.confirm(given)
    assert [one.state for one in of(folder)] == [FAILED]


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"begin": 1e308}, "1e+308"),
        ({"priority": 2**80}, "120892"),
        ({"attempt": 2**70}, "118059"),
        ({"attempt": -1}, "-1"),
        ({"need": {"cards": 2**70}}, "118059"),
        ({"need": {"time_limit": 1e400}}, "inf"),
        ({"name": "\udcff"}, "surrogates not allowed"),
        ({"after": ["\udcff"]}, "surrogates not allowed"),
        ({"id": ""}, "''"),
        ({"id": "../../x"}, "'../../x'"),
        ({"state": "foo"}, "'foo'"),
        ({"stop_asked": "foo"}, "'foo'"),
        ({"cards": ["a", "a"]}, "cards"),
        ({"format": 2}, "roost"),
    ],
)
def test_an_invalid_file_is_skipped_and_reported(
    tmp_path: Path, changed: dict[str, Any], fact: str, messages: Messages
) -> None:
    folder = package(tmp_path / "p")
    task_file.write(task(package=str(folder)), LAB)
    (path,) = (folder / "sessions").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    reports: list[str] = []
    assert task_file.read_all(folder, reports.append) == []
    (said,) = reports
    assert said.startswith(f"{path}: ") and fact in said
    messages.check(said.removeprefix(f"{path}: "))


@pytest.mark.parametrize("id", ["", "../x", "A" * 26, "0" * 27])
def test_no_task_has_such_an_id(id: str, messages: Messages) -> None:
    with pytest.raises(ValueError) as refused:
        task_file.require_valid(task(id=id))
    messages.check(refused.value)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 2}', '{"format": "x"}'])
def test_unreadable_files_are_skipped(tmp_path: Path, damage: str) -> None:
    folder = package(tmp_path / "p")
    task_file.write(given := task(package=str(folder)), LAB)
    (folder / "sessions" / "task-x.json").write_text(damage)
    assert of(folder) == [without_environment(given)]


def test_a_file_of_a_newer_roost_is_skipped(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    task_file.write(task(package=str(folder)), LAB)
    (path,) = (folder / "sessions").glob("task-*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    assert of(folder) == []


def test_a_missing_package_is_an_error_only_for_a_writer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        task_file.write(task(package=str(tmp_path / "gone")), LAB)
    assert of(tmp_path / "gone") == []


STRANGE = [
    None, [], {}, "", "\udcff", -1, 2**70, 1e308, True, [[]], {"a": {"a": {}}}, "../../x", "/", "train",
]  # fmt: skip


@pytest.mark.parametrize("kind", [TaskKind.ANALYZE, TaskKind.PREDICT])
def test_no_damage_of_a_session_folders_file_hides_the_others(kind: TaskKind, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    made, damaged = (session_folder.create(folder, kind, {}) for _ in range(2))
    for id, one in (("01", made), ("02", damaged)):
        task_file.write(task(id=id, package=str(folder), kind=kind, session_folder=str(one.path)), LAB)
    (path,) = damaged.session_files.glob("task-*")
    body = json.loads(path.read_text())
    wholes = [b"", b"\0" * 100, b"[" * 100_000, b"[]", b"null", b"1", b"\xff{}", path.read_bytes()[:-9]]
    changed = [{**body, name: value} for name in body for value in STRANGE]
    missing = [{key: value for key, value in body.items() if key != name} for name in body]
    older = [{**body, "plan": value} for value in STRANGE]
    for one in older:
        del one["kind"]
    texts = [json.dumps(one).encode() for one in (*changed, *missing, *older)]
    for text in (*wholes, *texts):
        path.write_bytes(text)
        found = task_file.read_all(folder)
        assert "01" in [one.task.id for one in found], text
        for one in found:
            assert one.task.kind == kind and one.task.package == str(folder), text
            assert Path(one.task.session_folder).parent.parent == folder, text


def test_session_folders_that_lead_elsewhere_are_no_tasks_of_the_package(tmp_path: Path) -> None:
    folder, other = package(tmp_path / "p"), package(tmp_path / "other")
    made = session_folder.create(other, TaskKind.ANALYZE, {})
    task_file.write(task(id="01", package=str(other), kind="analyze", session_folder=str(made.path)), LAB)
    (folder / "analyzers").mkdir()
    (folder / "analyzers" / "1").symlink_to(made.path)
    (folder / "analyzers" / "2").mkdir()
    (folder / "analyzers" / "2" / "sessions").write_text("no folder")
    (folder / "analyzers" / "x").mkdir()
    (folder / "predictions").write_text("no folder")
    assert not any(one.is_original for one in task_file.read_all(folder))
    (folder / "analyzers" / "1").unlink()
    (folder / "analyzers" / "1").symlink_to("1")
    assert task_file.read_all(folder) == []
    (folder / "analyzers" / "3" / "sessions").mkdir(parents=True)
    (folder / "analyzers" / "3" / "sessions" / "task-03.json").mkdir()
    os.mkfifo(folder / "analyzers" / "3" / "sessions" / "task-04.json")
    assert task_file.read_all(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_that_cannot_be_listed_is_skipped(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    task_file.write(task(id="01", package=str(folder)), LAB)
    (folder / "analyzers").mkdir(mode=0)
    (folder / "sessions" / "task-01.json").chmod(0o644)
    program = """import os; from pathlib import Path; from roost.lab.queue import task_file
os.setuid(65534)  # below this folder, as those above it are closed to others
said = []
print([one.task.id for one in task_file.read_all(Path(), said.append)], len(said))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "['01'] 1\n"), done
