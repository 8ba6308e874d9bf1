"""``sessions/task-<id>.json``: the copy of a task in its session folder, which is its package or a folder in
it. A lost queue is rebuilt from these files.

Written whenever the task becomes pending again, or ends without success; the session file holds the state of
an attempt that runs or has succeeded. Before the task is queued the file is only announced, as
``task-<id>.coming``, so that a rebuild does not run the tasks of a submit that was killed.
"""

# Not durable: gives an announced file its final name, unless a newer file has it

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import durable, safe_read
from roost.lab.queue import task_rows
from roost.lab.queue.task import ENDED, EVICT, KILL, LIVE, PENDING, STOP, Task
from roost.package import session_folder
from roost.package.kinds import TASK_KINDS

FORMAT = 1
ENVIRONMENT = "env"
"""The key of a plan that the file leaves out; a rebuild gives the plan another environment."""
_OF_THE_QUEUE = ("cards", "reserved_mb", "seq")
"""Fields that only the queue knows."""
_LAB_KEY = "lab"
_ID = re.compile(r"[0-9a-z]{1,26}")
_MAX_FLOAT, _MAX_INT = 1e11, 10**9
_MAY_BE_NEGATIVE = ("priority", "exit_code")


class StoredTask(NamedTuple):
    """The content of one file."""

    task: Task
    """The task; its package is the folder where the file was found."""
    is_original: bool
    """Whether the file was written for that folder; False in a copy of the package."""
    uid: int
    """The owner of the file."""
    lab: str
    """The lab whose queue has the task (`lab_name`); empty if the file does not name it."""


def lab_name(folder: Path, host: str = "") -> str:
    """Returns a name that no other queue has: the machine (this one, or ``host``) and the folder there."""
    return f"{host or os.uname().nodename}:{folder.resolve()}"


def write(task: Task, lab: Path) -> None:
    """Writes the file of a task into its package.

    The environment of the plan is left out, because it may hold secrets and packages are shared; the whole
    plan is left out once the task has ended.

    Args:
        task: The task.
        lab: The folder of the queue that has the task.

    Raises:
        OSError: The file cannot be written, for example because the package was deleted.
    """
    path = _path(task)
    for name in os.listdir(path.parent):  # noqa: PTH208  - for a fifth of the time of pathlib's
        if name.startswith(f".{path.name}.") and durable.is_staging(name):
            durable.discard(path.parent / name)  # of a killed process: writers hold the queue's lock
    _write(path, task, lab)


def announce(task: Task, lab: Path) -> None:
    """Writes the announced file before the task is queued, for `confirm`; arguments and errors as `write`."""
    _write(_announced_path(task), task, lab)


def confirm(task: Task) -> None:
    """Gives the announced file its final name after the task was queued, unless a newer file was written
    meanwhile.

    Raises:
        OSError: The package cannot be written, or was deleted.
    """
    coming = _announced_path(task)
    try:
        with suppress(FileExistsError):  # a newer file, which is kept
            os.link(coming, _path(task))
    except FileNotFoundError:  # another process has confirmed it already
        return
    except OSError:  # a file system without hard links
        durable.rename(coming, _path(task))
    durable.discard(coming)


def exists(task: Task) -> bool:
    """Returns whether the package has a file of the task, announced or final."""
    # In this order, because another process may confirm the file meanwhile.
    return _announced_path(task).is_file() or _path(task).is_file()


def remove(task: Task) -> None:
    """Removes the files of a task that was not queued."""
    for path in (_path(task), _announced_path(task)):
        durable.discard(path)


def _write(path: Path, task: Task, lab: Path) -> None:
    body: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(task).items() if name not in _OF_THE_QUEUE
    }
    left_out = task.plan if task.state in ENDED else (ENVIRONMENT,)
    body["plan"] = {name: value for name, value in task.plan.items() if name not in left_out}
    data = json.dumps({"format": FORMAT, _LAB_KEY: lab_name(lab), **body}, indent=1).encode() + b"\n"
    durable.write(path, data, mode=0o600)


def _path(task: Task) -> Path:
    return task.folder / session_folder.FOLDER / f"task-{task.id}.json"


def _announced_path(task: Task) -> Path:
    return _path(task).with_suffix(".coming")


def read_all(package: Path, report: Callable[[str], None] = lambda _: None) -> list[StoredTask]:
    """Returns the tasks of all files in a package and its session folders.

    Args:
        package: Its folder.
        report: Called with a line for each file that is skipped, with the reason.
    """
    found = []
    for path in _files(package, "task-*.json", report):
        try:
            found.append(_read(path, package))
        except (OSError, ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError) as error:
            report(f"{path}: {error}")
    return found


def _files(package: Path, pattern: str, report: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    folders = [package]
    try:
        folders += [one.path for _, one in session_folder.find_all(package)]
    except OSError as error:  # a folder that this user may not list
        report(f"{package}: {error}")
    for folder in folders:
        yield from sorted((folder / session_folder.FOLDER).glob(pattern))


def unconfirmed_files(package: Path) -> Iterator[Path]:
    """Yields the announced files without a final one."""
    for path in _files(package, "task-*.coming"):
        if not path.with_suffix(".json").exists():
            yield path


def _read(path: Path, package: Path) -> StoredTask:
    with open(safe_read.open_fd(path), "rb") as file:
        uid = os.fstat(file.fileno()).st_uid
        body = json.loads(file.read(safe_read.MAX_SMALL_FILE_BYTES))
    if body["format"] > FORMAT:
        raise ValueError("a newer roost has written it")
    if "array" in body:  # its name in the first version of the queue
        body["sweep"] = body.pop("array")
    if not isinstance(body["plan"], dict):
        raise TypeError(f"its plan is {body['plan']!r}")
    if "kind" not in body:  # before there were others than trainings and commands
        body["kind"] = task_rows.kind_of_older(body["plan"], package)
    folder = path.parent.parent
    place = {"package": str(package), "session_folder": str(folder) if folder != package else ""}
    task = msgspec.convert({**body, **place}, Task)
    if path.name != f"task-{task.id}.json":
        raise ValueError(f"its task is {task.id!r}")
    require_valid(task)
    return StoredTask(task, body["package"] == str(package), uid, str(body.get(_LAB_KEY, "")))


def require_valid(task: Task) -> None:
    """Checks that the queue can store a task that was read from a file.

    Raises:
        ValueError: A value is not valid.
    """
    if not _ID.fullmatch(task.id):
        raise ValueError(f"{task.id!r} is not an id of a task")
    known = {
        "state": (PENDING, *LIVE, *ENDED),
        "stop_asked": ("", EVICT, STOP, KILL),
        "kind": tuple(TASK_KINDS),
    }
    for name, words in known.items():
        if (found := getattr(task, name)) not in words:
            raise ValueError(f"its {name} is {found!r}")
    if task.traits.folder != (task.folder.parent.name if task.session_folder else None):
        raise ValueError(f"a task of the kind {task.kind} has no sessions there")
    if len(set(task.cards)) < len(task.cards):
        raise ValueError(f"its cards are {task.cards}")
    for one in (task, task.need):
        for field in msgspec.structs.fields(one):
            if field.name != "reason":  # which the queue makes printable
                _require_bounded(field.name, getattr(one, field.name))


def _require_bounded(name: str, value: object) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, tuple):
        for one in value:
            _require_bounded(name, one)
    elif isinstance(value, int | float):
        most = _MAX_FLOAT if isinstance(value, float) else _MAX_INT
        least = -most if name in _MAY_BE_NEGATIVE else 0
        if not math.isfinite(value) or not least <= value <= most:
            raise ValueError(f"its {name} is {value}")
