"""A task as a row of the queue's table."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from roost.lab.queue.task import ENDED, Need, Task

_FROM_ALLOCATION = ("cards", "reserved_mb")
COLUMNS = tuple(
    field.name for field in msgspec.structs.fields(Task) if field.name not in (*_FROM_ALLOCATION, "plan")
)
"""All but the plan, and the environment that belongs to it."""
SELECTED = ", ".join(f'"{name}"' for name in COLUMNS)
_VARIABLES = "(SELECT variables FROM environment WHERE number = task.environment)"
SELECTED_WHOLE = f'{SELECTED}, {_VARIABLES}, "plan"'
_INSERT = (
    f'INSERT INTO task ({SELECTED}, "environment", "plan") VALUES ({", ".join("?" * (len(COLUMNS) + 2))})'
)

_ENVIRONMENT = "env"
_UNREADABLE = (ValueError, TypeError, zlib.error, msgspec.DecodeError)

_need = functools.lru_cache(maxsize=1024)(msgspec.json.Decoder(Need).decode)
"""Of ten thousand tasks most need the same: it is read once, and is one object."""
_after = msgspec.json.Decoder(tuple[str, ...])
_NOBODY = "[]"


class Unreadable(Exception):
    """A row holds what no roost has written."""


def setting(text: str) -> Any:
    """The value of a setting.

    Raises:
        Unreadable: It is none.
    """
    try:
        return json.loads(text)
    except _UNREADABLE as error:
        raise Unreadable(str(error)) from error


def values(task: Task) -> dict[str, Any]:
    """What the columns hold of a task."""
    found = {name: getattr(task, name) for name in COLUMNS}
    for name in ("need", "after", "after_any"):
        found[name] = msgspec.json.encode(found[name]).decode()
    found["reason"] = printable(task.reason)
    return found


def printable(text: str) -> str:
    """A text without what is no UTF-8, as an error's line may hold it."""
    return text.encode(errors="replace").decode()


def packed(plan: Mapping[str, Any]) -> bytes:
    """A column of plain data: compressed, and by `json`, because a variable may be no UTF-8."""
    return zlib.compress(json.dumps(plan, sort_keys=True).encode(), 1)


def _unpacked(column: bytes) -> dict[str, Any]:
    return dict(json.loads(zlib.decompress(column)))


def insert(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Adds tasks to the table. An environment, which is larger than all the rest, stands once for all that
    have the same, until the last of them has ended.

    Raises:
        sqlite3.Error: They cannot be written; the caller's transaction takes them back.
    """
    for task in tasks:
        number = _number_of(connection, task.state, task.plan)
        connection.execute(_INSERT, (*values(task).values(), number, packed(without_environment(task.plan))))


def without_environment(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a plan when its task has ended."""
    return {name: value for name, value in plan.items() if name != _ENVIRONMENT}


def drop_environment(connection: sqlite3.Connection, id: str) -> bool:
    """Forgets the environment of a task that has ended; gives whether nobody else has the same, so that it
    stands nowhere any more."""
    found = connection.execute("SELECT environment FROM task WHERE id = ?", (id,)).fetchone()
    if found is None or found[0] is None:
        return False
    connection.execute("UPDATE task SET environment = NULL WHERE id = ?", (id,))
    used = "SELECT 1 FROM task WHERE environment = ?"
    sql = f"DELETE FROM environment WHERE number = ? AND NOT EXISTS ({used})"
    return connection.execute(sql, (found[0], found[0])).rowcount > 0


def take_out_environments(connection: sqlite3.Connection) -> None:
    """Of a queue of version 1, whose plans hold them.

    Raises:
        Unreadable: A plan holds what no roost has written.
    """
    for seq, state, column in connection.execute("SELECT seq, state, plan FROM task").fetchall():
        try:
            plan = _unpacked(column)
        except _UNREADABLE as error:
            raise Unreadable(str(error)) from error
        number = _number_of(connection, state, plan)
        sql = "UPDATE task SET environment = ?, plan = ? WHERE seq = ?"
        connection.execute(sql, (number, packed(without_environment(plan)), seq))


def _number_of(connection: sqlite3.Connection, state: str, plan: Mapping[str, Any]) -> int | None:
    if _ENVIRONMENT not in plan or state in ENDED:
        return None
    column = packed(plan[_ENVIRONMENT])
    digest = hashlib.sha256(column).digest()
    found = connection.execute("SELECT number FROM environment WHERE digest = ?", (digest,)).fetchone()
    if found is not None:
        return int(found[0])
    new = "INSERT INTO environment (digest, variables) VALUES (?, ?)"
    return connection.execute(new, (digest, column)).lastrowid


def changed(old: Task, new: Task) -> dict[str, Any]:
    """The columns, but for the plan's, that are not what they were."""
    before = values(old)
    return {name: value for name, value in values(new).items() if value != before[name]}


def task(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    """The task of a row.

    Args:
        row: As `SELECTED`, without a plan, or as `SELECTED_WHOLE`; the plan of a task that has ended lacks
            its environment.
        held: The cards, with their memory, of each task that holds some.

    Raises:
        Unreadable: It holds what no roost has written.
    """
    try:
        return _task(row, held)
    except _UNREADABLE as error:
        raise Unreadable(str(error)) from error


def _task(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    found = dict(zip((*COLUMNS, _ENVIRONMENT, "plan"), row, strict=False))
    found["need"] = _need(found["need"])
    for name in ("after", "after_any"):
        found[name] = _after.decode(found[name]) if found[name] != _NOBODY else ()
    found["held"] = bool(found["held"])
    if cards := held.get(found["id"]):
        found["cards"], found["reserved_mb"] = tuple(card for card, _ in cards), cards[0][1]
    if "plan" in found:
        found["plan"] = _unpacked(found["plan"])
        if (variables := found.pop(_ENVIRONMENT)) is not None:
            found["plan"][_ENVIRONMENT] = _unpacked(variables)
    return Task(**found)
