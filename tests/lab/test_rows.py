"""A task as a row."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from roost.lab import rows, schema
from roost.lab.task import Need, Task
from tests.lab.queued import PLAN, task


def row(task: Task) -> Sequence[Any]:
    return tuple(rows.values(task).values())


FULL = task(
    need=Need(cards=2, memory_mb=8, whole=True, time_limit=1.5, opportunistic=True),
    priority=-3, begin=1.0, after=("x", "y"), array="s", most_parallel=4, held=True, profile="k", scale=2.0,
    attempt=2, retries=1, session=3, cards=("GPU-1", "GPU-0"), reserved_mb=8, started=2.0, ended=3.0,
    exit_code=-9, stop_asked="stop", reason="because", version=7,
)  # fmt: skip


def test_every_field_has_its_column_and_comes_back() -> None:
    held = {FULL.id: [("GPU-1", 8), ("GPU-0", 8)]}
    assert rows.task((*row(FULL), rows.packed(FULL)), held) == FULL
    assert rows.task(row(FULL), {}) == msgspec.structs.replace(FULL, cards=(), reserved_mb=None, plan={})
    columns = re.findall(r'^\s+"(\w+)" ', schema.TABLES[0], re.MULTILINE)
    assert columns == [*rows.COLUMNS, "plan"]
    assert {*columns, "cards", "reserved_mb"} == set(Task.__struct_fields__)


def test_an_environment_stands_once_for_all_who_have_the_same() -> None:
    connection = sqlite3.connect(":memory:")
    for line in schema.TABLES:
        connection.execute(line)
    other = {**PLAN, "env": {"A": "other"}}
    tasks = [task(name="a"), task(name="b"), task(name="c", plan=other), task(name="d", plan={})]
    rows.insert(connection, tasks)
    assert connection.execute("SELECT count(*) FROM environment").fetchall() == [(2,)]
    found = connection.execute(f"SELECT {rows.SELECTED_WHOLE} FROM task ORDER BY seq").fetchall()
    assert [rows.task(one, {}, connection).plan for one in found] == [PLAN, PLAN, other, {}]
    connection.execute("DELETE FROM environment")
    with pytest.raises(rows.Unreadable, match="no environment"):
        rows.task(found[0], {}, connection)
    connection.close()


def test_only_what_changed_is_told() -> None:
    new = msgspec.structs.replace(FULL, priority=1, need=Need(), cards=(), plan={})
    assert rows.changed(FULL, new) == {"priority": 1, "need": rows.values(new)["need"]}


def test_a_variable_that_is_no_utf8_comes_back_and_a_reason_is_made_printable() -> None:
    assert rows.task((*row(task()), rows.packed(task())), {}).plan["env"] == PLAN["env"]
    assert rows.values(task(reason="bad \udcff"))["reason"] == "bad ?"


@pytest.mark.parametrize(("column", "value"), [("need", "{"), ("need", '{"cards": "x"}'), ("after", "[1]")])
def test_a_damaged_row_is_told(column: str, value: str) -> None:
    damaged = {**rows.values(FULL), column: value}
    with pytest.raises(rows.Unreadable):
        rows.task(tuple(damaged.values()), {})


@pytest.mark.parametrize("plan", [b"", b"garbage", 5])
def test_a_damaged_plan_is_told(plan: object) -> None:
    with pytest.raises(rows.Unreadable):
        rows.task((*row(FULL), plan), {})


def test_a_damaged_setting_is_told() -> None:
    assert rows.setting('{"a": [1]}') == {"a": [1]}
    with pytest.raises(rows.Unreadable):
        rows.setting("{")
