"""Which task a person means."""

from __future__ import annotations

import os.path
import shlex
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

from roost.base.errors import NotFound, Refused, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.lab.queue.task import ENDED, Task

SHORTEST = 8
"""Characters of an id that tell when it was made, to a second: what is submitted later begins otherwise."""
_MOST_TOLD = 10
_MOST_PROPOSED = 1000

_Row = tuple[str, str, str, str]
"""id, name, package, state"""
_Question = tuple[str, tuple[str, ...]]
"""A condition of tasks, and its values."""


def find(connection: sqlite3.Connection, text: str) -> str:
    """The id of the one task that is meant by an id, a name, the path of a package, or the beginning of an
    id, in this order; of several tasks the one that has not ended, of one package's also the newest.

    Args:
        connection: The queue.
        text: What was typed.

    Raises:
        NotFound: There is none.
        UsageError: There are several.
    """
    typed = text.strip().encode(errors="replace").decode()
    for where, value in _questions(typed) if typed else ():
        sql = f"SELECT id, name, package, state FROM task WHERE {where} ORDER BY seq"
        if found := connection.execute(sql, value).fetchall():
            return _one(found, text)
    names = connection.execute("SELECT name FROM task ORDER BY seq DESC LIMIT ?", (_MOST_PROPOSED,))
    near = did_you_mean(typed, dict.fromkeys(name for (name,) in names))
    fix = f"{near}`roost tasks` lists tasks, `roost ls` packages"
    raise NotFound("there is no such task or package", received=text, fix=fix)


def find_sweep(connection: sqlite3.Connection, text: str) -> str | None:
    """The id of the sweep that is meant by it, by its name, by its beginning, or by what its tasks are called
    together; None if a task, or nothing, is meant. Of one name those that go on are meant before those that
    have ended.

    Raises:
        UsageError: There are several, or tasks that it may mean as well.
    """
    typed = text.strip().encode(errors="replace").decode()
    by_id, *by_name, beginning = _questions(typed)
    if not typed or _ids(connection, *by_id):
        return None
    sweeps, tasks = _named(connection, typed, by_name)
    if not sweeps and not tasks:
        sql = "SELECT DISTINCT sweep FROM task WHERE substr(sweep, 1, ?) = ?"
        sweeps = [sweep for (sweep,) in connection.execute(sql, beginning[1])]
        tasks = _ids(connection, *beginning)
    if not sweeps and not tasks:
        sweeps = _called(connection, typed)
    elif not sweeps:
        return None
    if len(sweeps) + len(tasks) > 1:
        told = [*(f"the sweep {id}" for id in sweeps), *tasks]
        raise UsageError(
            f"{len(told)} tasks and sweeps are meant by it: {join_names(told, _MOST_TOLD)}",
            received=text,
            fix="give the id of one, or enough of its beginning",
        )
    return sweeps[0] if sweeps else None


def _named(
    connection: sqlite3.Connection, name: str, questions: Iterable[_Question]
) -> tuple[list[str], list[str]]:
    """The sweeps of this name, and the tasks; those alone that go on, if one does."""
    marks = ", ".join("?" * len(ENDED))
    for also, states in ((f" AND state NOT IN ({marks})", ENDED), ("", ())):
        sql = f"SELECT DISTINCT sweep FROM task WHERE sweep IS NOT NULL AND sweep_name = ?{also}"
        sweeps = [sweep for (sweep,) in connection.execute(sql, (name, *states))]
        found = (_ids(connection, f"{where}{also}", (*values, *states)) for where, values in questions)
        tasks = dict.fromkeys(id for ids in found for id in ids)
        if sweeps or tasks:
            break
    return sweeps, list(tasks)


def _called(connection: sqlite3.Connection, typed: str) -> list[str]:
    """The sweeps whose tasks begin with this name, those that go on before those that have ended:
    ``try`` and ``try_seed-…`` are that of ``try_seed-0`` and ``try_seed-1``."""
    name = typed.removesuffix("…")
    marks = ", ".join("?" * len(ENDED))
    sql = (
        f"SELECT sweep, min(name), max(name), sum(state NOT IN ({marks})) FROM task "
        "WHERE sweep IS NOT NULL GROUP BY sweep"
    )
    found = []
    for sweep, first, last, unended in connection.execute(sql, ENDED):
        common = os.path.commonprefix([first, last])  # noqa: RUF071  - they are no paths
        if (name and common == name) or common.startswith((f"{name}_", f"{name}-")):
            found.append((sweep, unended))
    return [sweep for sweep, unended in found if unended] or [sweep for sweep, _ in found]


def beginnings(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str]:
    """What suffices of each of these ids of tasks and sweeps to tell it from all others, `SHORTEST` at
    least."""
    sql = "SELECT id FROM task UNION SELECT sweep FROM task WHERE sweep IS NOT NULL ORDER BY 1"
    known = [id for (id,) in connection.execute(sql)]
    found = {}
    for id in ids:
        place = bisect_left(known, id)
        before, after = known[place - 1] if place else "", known[place + 1 : place + 2]
        length = SHORTEST
        for other in (before, *after):
            while length < len(id) and other.startswith(id[:length]):
                length += 1
        found[id] = id[:length]
    return found


def require_unended(task: Task, typed: str | None = None) -> None:
    """Makes sure that there is still something to order.

    Args:
        task: What it is to be given to.
        typed: What it was called; its id when None.

    Raises:
        Refused: It has ended.
    """
    if task.state in ENDED:
        called = typed or task.id
        fix = f"`roost why {shlex.quote(called)}` tells how it ended"
        raise Refused(f"the task has {task.state}", received=called, fix=fix)


def _ids(connection: sqlite3.Connection, where: str, values: tuple[str, ...]) -> list[str]:
    return [id for (id,) in connection.execute(f"SELECT id FROM task WHERE {where}", values)]


def _questions(text: str) -> list[_Question]:
    return [
        ("id = ?", (text.lower(),)),
        ("name = ?", (text,)),
        ("package IN (?, ?)", _paths(text)),
        *([] if "/" in text else [(f"substr(package, -{len(text) + 1}) = ?", (f"/{text}",))]),
        ("substr(id, 1, ?) = ?", (len(text), text.lower())),  # type: ignore[list-item]
    ]


def _paths(text: str) -> tuple[str, str]:
    """As it was typed, and without links."""
    try:
        path = Path(text).expanduser().absolute()
        return str(path), str(path.resolve())
    except (RuntimeError, ValueError, OSError):  # ~nobody, a NUL: it is no path
        return text, text


def _one(found: Sequence[_Row], text: str) -> str:
    unended = [row for row in found if row[3] not in ENDED]
    if len(unended) == 1:
        return unended[0][0]
    if not unended and len({package for _, _, package, _ in found}) == 1:
        return found[-1][0]
    several = unended or found
    told = [f"{id} ({name}, {state})" for id, name, _, state in reversed(several)]
    raise UsageError(
        f"{len(several)} tasks are meant by it: {join_names(told, _MOST_TOLD)}",
        received=text,
        fix="give the id of one, or enough of its beginning",
    )
