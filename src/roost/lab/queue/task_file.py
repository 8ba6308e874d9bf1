"""``sessions/task-<id>.json``: what a package tells of a task that runs in it. A lost queue is made of these.

Written whenever it waits again, or has ended otherwise than well; of an attempt that runs, or has succeeded,
its session tells. Before the task is queued it is only announced, as ``task-<id>.coming``: nobody runs what a
submit that was killed has left."""

# Not durable: gives what is announced its name, unless a newer one has that

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
from roost.lab.queue.task import ENDED, EVICT, KILL, LIVE, PENDING, STOP, Task

FORMAT = 1
ENVIRONMENT = "env"
"""What a ticket leaves out of a plan; whoever makes a task of it gives it another one."""
_HELD = ("cards", "reserved_mb")
_LAB = "lab"
_ID = re.compile(r"[0-9a-z]{1,26}")
_LATEST, _MOST = 1e11, 10**9
_MAY_BE_NEGATIVE = ("priority", "exit_code")


class Ticket(NamedTuple):
    """What one file tells."""

    task: Task
    """Its package is the folder where the file was found."""
    at_home: bool
    """Whether that is where it was written; it is not for a copy."""
    uid: int
    """Whose file it is."""
    lab: str
    """In whose queue it is (`name_of_lab`); empty where that was not written down."""


def name_of_lab(folder: Path, host: str = "") -> str:
    """What tells a queue from all others: the machine (this one, or ``host``), and the folder there."""
    return f"{host or os.uname().nodename}:{folder.resolve()}"


def write(task: Task, lab: Path) -> None:
    """Writes it into the task's package. Of the plan the environment is left out, which may hold secrets: a
    package is shown to others; and all of it once the task has ended.

    Args:
        task: The task.
        lab: The folder of the queue in which it is.

    Raises:
        OSError: It cannot be written; the package may be gone.
    """
    path = _path(task)
    for name in os.listdir(path.parent):  # noqa: PTH208  - for a fifth of the time of pathlib's
        if name.startswith(f".{path.name}.") and durable.is_staging(name):
            durable.discard(path.parent / name)  # of one who was killed: it is written under the queue's lock
    _write(path, task, lab)


def announce(task: Task, lab: Path) -> None:
    """Writes it before the task is queued, for `confirm`. For the arguments see `write`.

    Raises:
        OSError: As `write`.
    """
    _write(_coming(task), task, lab)


def confirm(task: Task) -> None:
    """The task is queued: what was announced counts, unless something newer was written meanwhile.

    Raises:
        OSError: The package cannot be written, or is gone.
    """
    coming = _coming(task)
    try:
        with suppress(FileExistsError):  # something newer: that counts
            os.link(coming, _path(task))
    except FileNotFoundError:  # somebody has confirmed it already
        return
    except OSError:  # a file system without second names
        durable.rename(coming, _path(task))
    durable.discard(coming)


def stands(task: Task) -> bool:
    """Whether the folder that the task names is its package."""
    return _coming(task).is_file() or _path(task).is_file()  # in this order, while somebody confirms it


def remove(task: Task) -> None:
    """Removes it again, of a task that was not queued."""
    for path in (_path(task), _coming(task)):
        durable.discard(path)


def _write(path: Path, task: Task, lab: Path) -> None:
    body: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(task).items() if name not in _HELD
    }
    left_out = task.plan if task.state in ENDED else (ENVIRONMENT,)
    body["plan"] = {name: value for name, value in task.plan.items() if name not in left_out}
    data = json.dumps({"format": FORMAT, _LAB: name_of_lab(lab), **body}, indent=1).encode() + b"\n"
    durable.write(path, data, mode=0o600)


def _path(task: Task) -> Path:
    return Path(task.package) / "sessions" / f"task-{task.id}.json"


def _coming(task: Task) -> Path:
    return _path(task).with_suffix(".coming")


def read_all(package: Path, tell: Callable[[str], None] = lambda _: None) -> list[Ticket]:
    """All that a package has.

    Args:
        package: Its folder.
        tell: Hears what is passed over, and why, a line each.
    """
    found = []
    for path in sorted((package / "sessions").glob("task-*.json")):
        try:
            found.append(_read(path, package))
        except (OSError, ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError) as error:
            tell(f"{path}: {error}")
    return found


def unconfirmed(package: Path) -> Iterator[Path]:
    """What was announced and not queued, as far as the package knows."""
    for path in sorted((package / "sessions").glob("task-*.coming")):
        if not path.with_suffix(".json").exists():
            yield path


def _read(path: Path, package: Path) -> Ticket:
    with open(safe_read.open_fd(path), "rb") as file:
        uid = os.fstat(file.fileno()).st_uid
        body = json.loads(file.read(safe_read.MAX_SMALL_FILE_BYTES))
    if body["format"] > FORMAT:
        raise ValueError("a newer roost has written it")
    if "array" in body:  # what it was called in the first version of the queue
        body["sweep"] = body.pop("array")
    task = msgspec.convert({**body, "package": str(package)}, Task)
    if path.name != f"task-{task.id}.json":
        raise ValueError(f"it tells of the task {task.id!r}")
    require_sense(task)
    return Ticket(task, body["package"] == str(package), uid, str(body.get(_LAB, "")))


def require_sense(task: Task) -> None:
    """Makes sure that a task is one that the queue can hold, whoever has written its file.

    Raises:
        ValueError: It is not.
    """
    if not _ID.fullmatch(task.id):
        raise ValueError(f"no task has the id {task.id!r}")
    known = {"state": (PENDING, *LIVE, *ENDED), "stop_asked": ("", EVICT, STOP, KILL)}
    for name, words in known.items():
        if (found := getattr(task, name)) not in words:
            raise ValueError(f"its {name} is {found!r}")
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
        most = _LATEST if isinstance(value, float) else _MOST
        least = -most if name in _MAY_BE_NEGATIVE else 0
        if not math.isfinite(value) or not least <= value <= most:
            raise ValueError(f"its {name} is {value}")
