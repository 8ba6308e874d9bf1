"""``sessions/task-<id>.json``: what a package tells of a task that runs in it. A lost queue is made of these.

Written before the task is queued, and whenever it waits again, or has ended; of an attempt that runs, its
session tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import durable, regular
from roost.lab.task import ENDED, Task

FORMAT = 1
ENVIRONMENT = "env"
"""What a ticket leaves out of a plan; whoever makes a task of it gives it another one."""
_HELD = ("cards", "reserved_mb")


class Ticket(NamedTuple):
    """What one file tells."""

    task: Task
    """Its package is the folder where the file was found."""
    at_home: bool
    """Whether that is where it was written; it is not for a copy."""


def write(task: Task) -> None:
    """Writes it into the task's package. Of the plan the environment is left out, which may hold secrets: a
    package is shown to others; and all of it once the task has ended.

    Raises:
        OSError: It cannot be written; the package may be gone.
    """
    body: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(task).items() if name not in _HELD
    }
    left_out = task.plan if task.state in ENDED else (ENVIRONMENT,)
    body["plan"] = {name: value for name, value in task.plan.items() if name not in left_out}
    data = json.dumps({"format": FORMAT, **body}, indent=1).encode() + b"\n"
    durable.write(_path(task), data, mode=0o600)


def remove(task: Task) -> None:
    """Removes it again, of a task that was not queued."""
    durable.discard(_path(task))


def _path(task: Task) -> Path:
    return Path(task.package) / "sessions" / f"task-{task.id}.json"


def read_all(package: Path) -> list[Ticket]:
    """All that a package has; what cannot be read is passed over."""
    found = (_read(path, package) for path in sorted((package / "sessions").glob("task-*.json")))
    return [one for one in found if one is not None]


def _read(path: Path, package: Path) -> Ticket | None:
    try:
        body = json.loads(regular.read(path))
        if body["format"] > FORMAT:
            return None
        task = msgspec.convert({**body, "package": str(package)}, Task)
        return Ticket(task, body["package"] == str(package))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError):
        return None
