"""Converts tasks to and from rows of the queue's table, and stores their environments."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import ENDED, Task
from roost.package import sessions
from roost.package.kinds import PackageKind, TaskKind

_FROM_ALLOCATION = ("cards", "reserved_mb")
COLUMNS = tuple(
    field.name for field in msgspec.structs.fields(Task) if field.name not in (*_FROM_ALLOCATION, "plan")
)
"""All columns but the plan and its environment."""
COLUMN_LIST = ", ".join(f'"{name}"' for name in COLUMNS)
_VARIABLES = "(SELECT variables FROM environment WHERE number = task.environment)"
COLUMN_LIST_WITH_PLAN = f'{COLUMN_LIST}, {_VARIABLES}, "plan"'
_INSERT = (
    f'INSERT INTO task ({COLUMN_LIST}, "environment", "plan") VALUES ({", ".join("?" * (len(COLUMNS) + 2))})'
)

_ENVIRONMENT = "env"
_UNREADABLE = (ValueError, TypeError, zlib.error, msgspec.DecodeError)

_decode_request = functools.lru_cache(maxsize=1024)(msgspec.json.Decoder(ResourceRequest).decode)
"""Most of ten thousand tasks have equal requests: each is decoded once, and is one object."""
_ids_decoder = msgspec.json.Decoder(tuple[str, ...])
_NO_IDS = "[]"


class UnreadableRow(Exception):
    """A row has a value that no roost writes."""


def decode_setting(text: str) -> Any:
    """Returns the value of a setting.

    Raises:
        UnreadableRow: The text is not JSON.
    """
    try:
        return json.loads(text)
    except _UNREADABLE as error:
        raise UnreadableRow(str(error)) from error


def column_values(task: Task) -> dict[str, Any]:
    """Returns the value of each column for a task."""
    found = {name: getattr(task, name) for name in COLUMNS}
    for name in ("need", "after", "after_any"):
        found[name] = msgspec.json.encode(found[name]).decode()
    found["reason"] = printable(task.reason)
    return found


def printable(text: str) -> str:
    """Replaces characters that UTF-8 cannot encode, as a line of an error may have them."""
    return text.encode(errors="replace").decode()


def compress_json(plan: Mapping[str, Any]) -> bytes:
    """Encodes plain data as compressed JSON; by `json`, because an environment variable may not be UTF-8."""
    return zlib.compress(json.dumps(plan, sort_keys=True).encode(), 1)


def _decompress_json(column: bytes) -> dict[str, Any]:
    return dict(json.loads(zlib.decompress(column)))


def insert(connection: sqlite3.Connection, tasks: Iterable[Task]) -> list[Task]:
    """Adds tasks to the table; returns them with their numbers.

    An environment, which is larger than all the rest, is stored once for all tasks with the same one, until
    the last of them has ended.

    Raises:
        sqlite3.Error: The tasks cannot be written; the caller's transaction rolls them back.
    """
    added = []
    for task in tasks:
        number = _environment_number(connection, task.state, task.plan)
        plan = compress_json(without_environment(task.plan))
        values = {**column_values(task), "seq": task.seq or None}  # SQLite numbers a new one
        row = connection.execute(_INSERT, (*values.values(), number, plan))
        added.append(msgspec.structs.replace(task, seq=row.lastrowid))
    return added


def without_environment(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plan without its environment, as it is kept after the task has ended."""
    return {name: value for name, value in plan.items() if name != _ENVIRONMENT}


def drop_environment(connection: sqlite3.Connection, id: str) -> bool:
    """Removes the environment of a task that has ended; returns whether it was deleted, because no other task
    has the same."""
    found = connection.execute("SELECT environment FROM task WHERE id = ?", (id,)).fetchone()
    if found is None or found[0] is None:
        return False
    connection.execute("UPDATE task SET environment = NULL WHERE id = ?", (id,))
    used = "SELECT 1 FROM task WHERE environment = ?"
    sql = f"DELETE FROM environment WHERE number = ? AND NOT EXISTS ({used})"
    return connection.execute(sql, (found[0], found[0])).rowcount > 0


def separate_environments(connection: sqlite3.Connection) -> None:
    """Moves the environments of a queue of version 1 out of the plans.

    Raises:
        UnreadableRow: A plan has a value that no roost writes.
    """
    for seq, state, column in connection.execute("SELECT seq, state, plan FROM task").fetchall():
        try:
            plan = _decompress_json(column)
        except _UNREADABLE as error:
            raise UnreadableRow(str(error)) from error
        number = _environment_number(connection, state, plan)
        sql = "UPDATE task SET environment = ?, plan = ? WHERE seq = ?"
        connection.execute(sql, (number, compress_json(without_environment(plan)), seq))


def set_kinds(connection: sqlite3.Connection) -> None:
    """Sets the kinds of the tasks of a queue of version 4, which are trainings and commands.

    Raises:
        UnreadableRow: A plan has a value that no roost writes.
    """
    for seq, package, column in connection.execute("SELECT seq, package, plan FROM task").fetchall():
        try:
            kind = kind_of_older(_decompress_json(column), package)
        except _UNREADABLE as error:
            raise UnreadableRow(str(error)) from error
        if kind != TaskKind.TRAIN:
            connection.execute("UPDATE task SET kind = ? WHERE seq = ?", (kind, seq))


def kind_of_older(plan: Mapping[str, Any], package: str | Path) -> TaskKind:
    """Returns the kind of a task of an older roost, by its plan; if it has none left, by its package."""
    request = {} if plan else sessions.load_json(Path(package) / "request.json") or {}
    is_command = plan.get("is_command") or request.get("kind") == PackageKind.COMMAND
    return TaskKind.COMMAND if is_command else TaskKind.TRAIN


def _environment_number(connection: sqlite3.Connection, state: str, plan: Mapping[str, Any]) -> int | None:
    if _ENVIRONMENT not in plan or state in ENDED:
        return None
    column = compress_json(plan[_ENVIRONMENT])
    digest = hashlib.sha256(column).digest()
    found = connection.execute("SELECT number FROM environment WHERE digest = ?", (digest,)).fetchone()
    if found is not None:
        return int(found[0])
    new = "INSERT INTO environment (digest, variables) VALUES (?, ?)"
    return connection.execute(new, (digest, column)).lastrowid


def changed_columns(old: Task, new: Task) -> dict[str, Any]:
    """Returns the new values of the columns that differ, without the plan."""
    before = column_values(old)
    return {name: value for name, value in column_values(new).items() if value != before[name]}


def task_from_row(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    """Returns the task of a row.

    Args:
        row: The columns of `COLUMN_LIST`, or with the plan those of `COLUMN_LIST_WITH_PLAN`; the plan of a
            task that has ended lacks its environment.
        held: The cards of each task that holds some, with the memory on each.

    Raises:
        UnreadableRow: The row has a value that no roost writes.
    """
    try:
        return _task_from_row(row, held)
    except _UNREADABLE as error:
        raise UnreadableRow(str(error)) from error


def _task_from_row(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    found = dict(zip((*COLUMNS, _ENVIRONMENT, "plan"), row, strict=False))
    found["need"] = _decode_request(found["need"])
    for name in ("after", "after_any"):
        found[name] = _ids_decoder.decode(found[name]) if found[name] != _NO_IDS else ()
    found["held"] = bool(found["held"])
    if cards := held.get(found["id"]):
        found["cards"], found["reserved_mb"] = tuple(card for card, _ in cards), cards[0][1]
    if "plan" in found:
        found["plan"] = _decompress_json(found["plan"])
        if (variables := found.pop(_ENVIRONMENT)) is not None:
            found["plan"][_ENVIRONMENT] = _decompress_json(variables)
    return Task(**found)
