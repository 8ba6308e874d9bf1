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

from roost.lab.task import Need, Task

_FROM_ALLOCATION = ("cards", "reserved_mb")
COLUMNS = tuple(
    field.name for field in msgspec.structs.fields(Task) if field.name not in (*_FROM_ALLOCATION, "plan")
)
"""All but the plan: the environment in it is larger than all the rest."""
SELECTED = ", ".join(f'"{name}"' for name in COLUMNS)
SELECTED_WHOLE = f'{SELECTED}, "plan"'
_INSERT = f"INSERT INTO task ({SELECTED_WHOLE}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"

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
    found["need"], found["after"] = (msgspec.json.encode(value).decode() for value in (task.need, task.after))
    found["reason"] = printable(task.reason)
    return found


def printable(text: str) -> str:
    """A text without what is no UTF-8, as an error's line may hold it."""
    return text.encode(errors="replace").decode()


def packed(task: Task, environment: int | None = None) -> bytes:
    """The column of its plan: compressed, and by `json`, because a variable may be no UTF-8.

    Args:
        task: The task.
        environment: The number under which its environment stands; None: it stands in the plan.
    """
    plan = task.plan if environment is None else {**task.plan, _ENVIRONMENT: environment}
    return zlib.compress(json.dumps(plan).encode(), 1)


def insert(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Adds tasks to the table. An environment, which is larger than all the rest, stands once for all that
    have the same.

    Raises:
        sqlite3.Error: They cannot be written; the caller's transaction takes them back.
    """
    for task in tasks:
        number = _number_of(connection, task.plan[_ENVIRONMENT]) if task.plan.get(_ENVIRONMENT) else None
        connection.execute(_INSERT, (*values(task).values(), packed(task, number)))


def _number_of(connection: sqlite3.Connection, environment: Mapping[str, str]) -> int:
    text = json.dumps(environment, sort_keys=True).encode()
    digest = hashlib.sha256(text).digest()
    found = connection.execute("SELECT number FROM environment WHERE digest = ?", (digest,)).fetchone()
    if found is not None:
        return int(found[0])
    new = "INSERT INTO environment (digest, variables) VALUES (?, ?)"
    number = connection.execute(new, (digest, zlib.compress(text, 1))).lastrowid
    assert number is not None
    return number


def changed(old: Task, new: Task) -> dict[str, Any]:
    """The columns, but for the plan's, that are not what they were."""
    before = values(old)
    return {name: value for name, value in values(new).items() if value != before[name]}


def task(
    row: Sequence[Any],
    held: Mapping[str, list[tuple[str, int | None]]],
    connection: sqlite3.Connection | None = None,
) -> Task:
    """The task of a row.

    Args:
        row: Its `COLUMNS`, and perhaps its plan; without that the task has none.
        held: The cards, with their memory, of each task that holds some.
        connection: Where the environments of plans stand.

    Raises:
        Unreadable: It holds what no roost has written.
    """
    try:
        return _task(row, held, connection)
    except _UNREADABLE as error:
        raise Unreadable(str(error)) from error


def _task(
    row: Sequence[Any],
    held: Mapping[str, list[tuple[str, int | None]]],
    connection: sqlite3.Connection | None,
) -> Task:
    found = dict(zip((*COLUMNS, "plan"), row, strict=False))
    found["need"] = _need(found["need"])
    found["after"] = _after.decode(found["after"]) if found["after"] != _NOBODY else ()
    found["held"] = bool(found["held"])
    if cards := held.get(found["id"]):
        found["cards"], found["reserved_mb"] = tuple(card for card, _ in cards), cards[0][1]
    if "plan" in found:
        found["plan"] = plan = dict(json.loads(zlib.decompress(found["plan"])))
        if connection is not None and isinstance(number := plan.get(_ENVIRONMENT), int):
            plan[_ENVIRONMENT] = _environment(connection, number)
    return Task(**found)


def _environment(connection: sqlite3.Connection, number: int) -> dict[str, str]:
    found = connection.execute("SELECT variables FROM environment WHERE number = ?", (number,)).fetchone()
    if found is None:
        raise ValueError(f"there is no environment {number}")
    return dict(json.loads(zlib.decompress(found[0])))
