"""Tasks as rows."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import schema, task_rows
from roost.lab.queue.task import FAILED, Task
from tests.lab.queued import PLAN, TOLD, task


def row(task: Task) -> Sequence[Any]:
    return tuple(task_rows.column_values(task).values())


def whole(task: Task) -> Sequence[Any]:
    """A row with the columns of `COLUMN_LIST_WITH_PLAN`."""
    plan = {name: value for name, value in task.plan.items() if name != "env"}
    return (*row(task), task_rows.compress_json(task.plan["env"]), task_rows.compress_json(plan))


FULL = task(
    need=ResourceRequest(cards=2, memory_mb=8, whole=True, time_limit=1.5, opportunistic=True, cores=3),
    priority=-3, begin=1.0, after=("x", "y"), after_any=("z",), sweep="s", sweep_name="n",
    most_parallel=4, held=True, profile="k", scale=2.0,
    attempt=2, retries=1, session=3, cards=("GPU-1", "GPU-0"), reserved_mb=8, started=2.0, ended=3.0,
    exit_code=-9, stop_asked="stop", reason="because", version=7,
)  # fmt: skip


def test_every_field_has_its_column_and_comes_back() -> None:
    held = {FULL.id: [("GPU-1", 8), ("GPU-0", 8)]}
    assert task_rows.task_from_row(whole(FULL), held) == FULL
    assert task_rows.task_from_row(row(FULL), {}) == msgspec.structs.replace(
        FULL, cards=(), reserved_mb=None, plan={}
    )
    columns = re.findall(r'^\s+"(\w+)" ', schema.TABLES[1], re.MULTILINE)
    assert columns == [*(name for name in task_rows.COLUMNS if name != "seq"), "plan"]  # SQLite's own number
    assert {*columns, "seq", "cards", "reserved_mb"} == set(Task.__struct_fields__)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for line in schema.TABLES:
            connection.execute(line)
        yield connection


def plans(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    found = connection.execute(f"SELECT {task_rows.COLUMN_LIST_WITH_PLAN} FROM task ORDER BY seq")
    return [task_rows.task_from_row(one, {}).plan for one in found]


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM environment").fetchone()[0])


def test_equal_environments_are_stored_once(connection: sqlite3.Connection) -> None:
    other = {**PLAN, "env": {"A": "other"}}
    tasks = [task(name="a"), task(name="b"), task(name="c", plan=other), task(name="d", plan={})]
    task_rows.insert(connection, tasks)
    assert count(connection) == 2
    assert plans(connection) == [PLAN, PLAN, other, {}]


def test_an_environment_is_deleted_with_its_last_task(connection: sqlite3.Connection) -> None:
    tasks = [task(), task(), task(plan={"argv": []}), task(state=FAILED)]
    task_rows.insert(connection, tasks)
    assert plans(connection) == [PLAN, PLAN, {"argv": []}, TOLD], "an ended task needs none"
    assert [task_rows.drop_environment(connection, tasks[n].id) for n in (0, 0, 2, 3)] == [False] * 4
    assert plans(connection)[:2] == [TOLD, PLAN]
    assert task_rows.drop_environment(connection, tasks[1].id)
    assert plans(connection)[:2] == [TOLD, TOLD] and count(connection) == 0
    used = "EXPLAIN QUERY PLAN SELECT 1 FROM task WHERE environment = 1"
    assert "task_environment" in str(connection.execute(used).fetchall()), "and no table is read for that"


def test_changed_columns() -> None:
    new = msgspec.structs.replace(FULL, priority=1, need=ResourceRequest(), cards=(), plan={})
    assert task_rows.changed_columns(FULL, new) == {
        "priority": 1,
        "need": task_rows.column_values(new)["need"],
    }


def test_a_variable_that_is_no_utf8_comes_back_and_a_reason_is_made_printable() -> None:
    assert task_rows.task_from_row(whole(task()), {}).plan["env"] == PLAN["env"]
    assert task_rows.column_values(task(reason="bad \udcff"))["reason"] == "bad ?"


@pytest.mark.parametrize(("column", "value"), [("need", "{"), ("need", '{"cards": "x"}'), ("after", "[1]")])
def test_a_damaged_row_is_reported(column: str, value: str) -> None:
    damaged = {**task_rows.column_values(FULL), column: value}
    with pytest.raises(task_rows.UnreadableRow):
        task_rows.task_from_row(tuple(damaged.values()), {})


@pytest.mark.parametrize("plan", [b"", b"garbage", 5])
def test_a_damaged_plan_is_reported(plan: object) -> None:
    with pytest.raises(task_rows.UnreadableRow):
        task_rows.task_from_row((*row(FULL), None, plan), {})
    with pytest.raises(task_rows.UnreadableRow):
        task_rows.task_from_row((*row(FULL), plan, task_rows.compress_json({})), {})


def test_a_damaged_setting_is_reported() -> None:
    assert task_rows.decode_setting('{"a": [1]}') == {"a": [1]}
    with pytest.raises(task_rows.UnreadableRow):
        task_rows.decode_setting("{")
