"""Finds tasks and sweeps by what a user types: an id, a label, the beginning of an id, a name, or a path."""

from __future__ import annotations

import os.path
import re
import shlex
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from roost.base.errors import NotFound, Refused, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.typed_path import typed_path
from roost.base.text.word_list import join_names
from roost.lab.queue.task import ENDED, Task
from roost.package.kinds import TASK_KINDS, task_label

MIN_PREFIX_LENGTH = 8
"""The characters of an id that encode its time to a second: tasks submitted later begin differently."""
_MAX_LISTED = 10
_KINDS: dict[str, str] = {traits.letter: kind for kind, traits in TASK_KINDS.items()}
_LABEL = re.compile(rf"([{''.join(_KINDS)}])_([1-9][0-9]{{0,17}})")
_MAX_SUGGESTED = 1000

_PACKAGE = "session_folder = ''"
"""The condition that the session folder is the package."""

_Row = tuple[str, str, str, str]
"""The id, name and state of a task, and before the state a text that differs for each session folder."""
_Condition = tuple[str, tuple[str, ...]]
"""An SQL condition on tasks, and its values."""


def find(connection: sqlite3.Connection, text: str) -> str:
    """Returns the id of the task with an id, a label, a name, the path of a session folder, or the beginning
    of an id, in this order. The path of a package is that of its trainings and commands; tasks that only read
    it have folders of their own.

    Of several tasks the one that has not ended is taken; if all have ended and are of one folder, the newest.

    Args:
        connection: The queue.
        text: The text that the user typed.

    Raises:
        NotFound: No task matches.
        UsageError: Several tasks match.
    """
    typed = text.strip().encode(errors="replace").decode()
    for where, value in (*_identifiers(typed), *_conditions(typed)) if typed else ():
        sql = f"SELECT id, name, package || session_folder, state FROM task WHERE {where} ORDER BY seq"
        if found := connection.execute(sql, value).fetchall():
            return _single_task(found, text)
    names = connection.execute("SELECT name FROM task ORDER BY seq DESC LIMIT ?", (_MAX_SUGGESTED,))
    near = _other_label_hint(connection, typed) or did_you_mean(
        typed, dict.fromkeys(name for (name,) in names)
    )
    fix = f"{near}choose one from `roost tasks` or `roost ls`"
    raise NotFound("there is no such task or package", received=text, fix=fix)


def find_sweep(connection: sqlite3.Connection, text: str) -> str | None:
    """Returns the id of the sweep with a name, a beginning of an id, or a common beginning of its tasks'
    names; None if a task matches first, or nothing does. Of sweeps with one name, unfinished ones come before
    ended ones.

    Raises:
        UsageError: Several sweeps match, or tasks match as well.
    """
    typed = text.strip().encode(errors="replace").decode()
    *by_name, beginning = _conditions(typed)
    if not typed or any(_ids(connection, *one) for one in _identifiers(typed)):
        return None
    sweeps, tasks = _named(connection, typed, by_name)
    if not sweeps and not tasks:
        sql = "SELECT DISTINCT sweep FROM task WHERE substr(sweep, 1, ?) = ?"
        sweeps = [sweep for (sweep,) in connection.execute(sql, beginning[1])]
        tasks = _ids(connection, *beginning)
    if not sweeps and not tasks:
        sweeps = _sweeps_by_common_name(connection, typed)
    elif not sweeps:
        return None
    if len(sweeps) + len(tasks) > 1:
        matches = [*(f"the sweep {id}" for id in sweeps), *tasks]
        raise UsageError(
            f"{len(matches)} tasks and sweeps match: {join_names(matches, _MAX_LISTED)}",
            received=text,
            fix="give the id of one, or a longer beginning of it",
        )
    return sweeps[0] if sweeps else None


def _named(
    connection: sqlite3.Connection, name: str, questions: Iterable[_Condition]
) -> tuple[list[str], list[str]]:
    """Returns the sweeps and the tasks with a name; only the unfinished ones, if there are any."""
    marks = ", ".join("?" * len(ENDED))
    for also, states in ((f" AND state NOT IN ({marks})", ENDED), ("", ())):
        sql = f"SELECT DISTINCT sweep FROM task WHERE sweep IS NOT NULL AND sweep_name = ?{also}"
        sweeps = [sweep for (sweep,) in connection.execute(sql, (name, *states))]
        found = (_ids(connection, f"{where}{also}", (*values, *states)) for where, values in questions)
        tasks = dict.fromkeys(id for ids in found for id in ids)
        if sweeps or tasks:
            break
    return sweeps, list(tasks)


def _sweeps_by_common_name(connection: sqlite3.Connection, typed: str) -> list[str]:
    """Returns the sweeps whose tasks' names begin with a name; only the unfinished ones, if there are any.

    ``try`` and ``try_seed-…`` match the sweep of ``try_seed-0`` and ``try_seed-1``.
    """
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


def unique_prefixes(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Returns the shortest beginning of each id (of tasks and sweeps) that no other id has, with at least
    `MIN_PREFIX_LENGTH` characters."""
    known = all_ids(connection)
    return {id: unique_prefix(known, id) for id in ids}


def all_ids(connection: sqlite3.Connection) -> list[str]:
    """Returns the ids of all tasks and sweeps, sorted."""
    # Each from its index, without rows of the table; a UNION would sort them again.
    ids = [id for (id,) in connection.execute("SELECT id FROM task ORDER BY id")]
    sql = "SELECT DISTINCT sweep FROM task WHERE sweep IS NOT NULL ORDER BY sweep"
    sweeps = [id for (id,) in connection.execute(sql)]
    return sorted({*ids, *sweeps}) if sweeps else ids


def unique_prefix(known: Sequence[str], id: str) -> str:
    """Returns the shortest beginning of an id that no other of the known ones has, which are sorted and
    include it; as `unique_prefixes`."""
    place = bisect_left(known, id)
    before, after = known[place - 1] if place else "", known[place + 1 : place + 2]
    length = MIN_PREFIX_LENGTH
    for other in (before, *after):
        while length < len(id) and other.startswith(id[:length]):
            length += 1
    return id[:length]


def require_unended(task: Task, typed: str | None = None) -> None:
    """Checks that a task has not ended.

    Args:
        task: The task.
        typed: The text that the user typed; None: its id.

    Raises:
        Refused: The task has ended.
    """
    if task.state in ENDED:
        name = typed or task.id
        fix = f"see its result with `roost why {shlex.quote(name)}`"
        raise Refused(f"the task has {task.state}", received=name, fix=fix)


def _ids(connection: sqlite3.Connection, where: str, values: tuple[str, ...]) -> list[str]:
    return [id for (id,) in connection.execute(f"SELECT id FROM task WHERE {where}", values)]


def _identifiers(text: str) -> list[_Condition]:
    """Returns the conditions that at most one task meets."""
    found: list[_Condition] = [("id = ?", (text.lower(),))]
    if label := _LABEL.fullmatch(text):
        found.append(("kind = ? AND seq = ?", (_KINDS[label[1]], label[2])))
    return found


def _other_label_hint(connection: sqlite3.Connection, text: str) -> str:
    """Returns the label of the task with the number of ``text``, a label with another letter."""
    if not (label := _LABEL.fullmatch(text)):
        return ""
    found = connection.execute("SELECT kind FROM task WHERE seq = ?", (label[2],)).fetchone()
    return f"did you mean {task_label(found[0], int(label[2]))}? " if found else ""


def _conditions(text: str) -> list[_Condition]:
    return [
        ("name = ?", (text,)),
        (f"package IN (?, ?) AND {_PACKAGE}", _paths(text)),
        ("session_folder IN (?, ?)", _paths(text)),
        *(
            []
            if "/" in text
            else [(f"substr(package, -{len(text) + 1}) = ? AND session_folder = ''", (f"/{text}",))]
        ),
        ("substr(id, 1, ?) = ?", (len(text), text.lower())),  # type: ignore[list-item]
    ]


def _paths(text: str) -> tuple[str, str]:
    """Returns a path as typed, and with its symbolic links resolved."""
    try:
        path = typed_path(text).absolute()
        return str(path), str(path.resolve())
    except (NotFound, ValueError, OSError):  # such as an unknown user after ~, or a NUL: not a path
        return text, text


def _single_task(found: Sequence[_Row], text: str) -> str:
    unended = [row for row in found if row[3] not in ENDED]
    if len(unended) == 1:
        return unended[0][0]
    if not unended and len({folder for _, _, folder, _ in found}) == 1:
        return found[-1][0]
    several = unended or found
    matches = [f"{id} ({name}, {state})" for id, name, _, state in reversed(several)]
    raise UsageError(
        f"{len(several)} tasks match: {join_names(matches, _MAX_LISTED)}",
        received=text,
        fix="give the id of one, or a longer beginning of it",
    )
