"""A task as a row of the queue's table."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
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
INSERT = f"INSERT INTO task ({SELECTED_WHOLE}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"

_UNREADABLE = (ValueError, TypeError, zlib.error, msgspec.DecodeError)

_need = msgspec.json.Decoder(Need)
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


def packed(task: Task) -> bytes:
    """The column of its plan: compressed, because ten thousand environments are large, and by `json`, because
    a variable may be no UTF-8."""
    return zlib.compress(json.dumps(task.plan).encode(), 1)


def changed(old: Task, new: Task) -> dict[str, Any]:
    """The columns, but for the plan's, that are not what they were."""
    before = values(old)
    return {name: value for name, value in values(new).items() if value != before[name]}


def task(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    """The task of a row.

    Args:
        row: Its `COLUMNS`, and perhaps its plan; without that the task has none.
        held: The cards, with their memory, of each task that holds some.

    Raises:
        Unreadable: It holds what no roost has written.
    """
    try:
        return _task(row, held)
    except _UNREADABLE as error:
        raise Unreadable(str(error)) from error


def _task(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
    found = dict(zip((*COLUMNS, "plan"), row, strict=False))
    found["need"] = _need.decode(found["need"])
    found["after"] = _after.decode(found["after"]) if found["after"] != _NOBODY else ()
    found["held"] = bool(found["held"])
    if cards := held.get(found["id"]):
        found["cards"], found["reserved_mb"] = tuple(card for card, _ in cards), cards[0][1]
    if "plan" in found:
        found["plan"] = dict(json.loads(zlib.decompress(found["plan"])))
    return Task(**found)
