"""What a package tells of its tasks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from roost.lab import ticket
from roost.lab.task import FAILED, Need, Task
from tests.lab.queued import PLAN, package, task


def without_environment(task: Task) -> Task:
    return msgspec.structs.replace(task, plan={"argv": PLAN["argv"]})


def of(folder: Path) -> list[Task]:
    return [one.task for one in ticket.read_all(folder)]


def test_all_but_what_it_holds_is_read_again(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    need = Need(cards=2, memory_mb=4000, time_limit=60.0)
    given = task(package=str(folder), need=need, after=("a",), begin=5.0, held=True, array="s", scale=2.0)
    ticket.write(msgspec.structs.replace(given, cards=("GPU-0",), reserved_mb=9))
    assert of(folder) == [without_environment(given)]


def test_it_is_its_owners_alone_never_holds_the_environment_and_no_plan_in_the_end(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    ticket.write(given)
    (path,) = (folder / "sessions").glob("task-*")
    assert path.stat().st_mode & 0o777 == 0o600
    assert of(folder)[0].plan == {"argv": PLAN["argv"]}
    assert b"PATH" not in path.read_bytes()
    ticket.write(msgspec.structs.replace(given, state=FAILED))
    assert path.stat().st_mode & 0o777 == 0o600
    assert of(folder)[0].plan == {}


def test_it_is_removed_where_the_task_was_not_queued(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = task(package=str(folder))
    ticket.write(given)
    ticket.remove(given)
    assert not any((folder / "sessions").iterdir())
    ticket.remove(given)


def test_a_package_has_several_and_a_copy_says_so(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    given = [task(package=str(folder)) for _ in range(2)]
    for one in given:
        ticket.write(one)
    assert sorted(of(folder), key=lambda task: task.id) == sorted(
        map(without_environment, given), key=lambda task: task.id
    )
    assert all(one.at_home for one in ticket.read_all(folder))
    shutil.copytree(folder, tmp_path / "copy")
    copies = ticket.read_all(tmp_path / "copy")
    assert [one.at_home for one in copies] == [False, False]
    assert {one.task.package for one in copies} == {str(tmp_path / "copy")}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 2}', '{"format": "x"}'])
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, damage: str) -> None:
    folder = package(tmp_path / "p")
    ticket.write(given := task(package=str(folder)))
    (folder / "sessions" / "task-x.json").write_text(damage)
    assert of(folder) == [without_environment(given)]


def test_one_of_a_newer_roost_is_passed_over(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    ticket.write(task(package=str(folder)))
    (path,) = (folder / "sessions").glob("task-*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    assert of(folder) == []


def test_a_package_that_is_gone_is_an_error_for_the_writer_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ticket.write(task(package=str(tmp_path / "gone")))
    assert of(tmp_path / "gone") == []
