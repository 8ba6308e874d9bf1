"""``submit -- COMMAND``: any command of the user becomes a task. Nothing here loads what trainings need."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from roost.base.errors import NotFound, Refused, UsageError
from roost.lab.queue.task import Task
from roost.lab.sessions.session_plan import Plan
from roost.operations import lab
from roost.operations.queue.new_tasks import NewTasks, enqueue, new_task, require_unused_name
from roost.operations.queue.resources import TaskOptions, require_satisfiable
from roost.operations.resolve import RUNS
from roost.operations.sessions.caller_environment import callers_environment
from roost.package.package import PackageFolder
from roost.supervisor.limits import SessionLimits

"""Where the package of a command goes."""
_MAX_NAME_CHARS = 48
"""Characters of a command by which its task is called."""


def submit_command(
    command: Sequence[str],
    options: TaskOptions,
    *,
    name: str | None = None,
    description: str | None = None,
    folder: Path | None = None,
) -> NewTasks:
    """Queues a command, which runs where it was typed.

    Args:
        command: And its arguments.
        options: What it asks of the lab.
        name: The package's; None: the time.
        description: A few words about it; None: the command itself.
        folder: Where it runs; None: the current one.

    Raises:
        NotFound: There is no such program, or no such task to wait for.
        UsageError: What is asked contradicts itself.
        Refused: A task could never start; or the lab will not do.
        RoostError: The daemon did not start.
        OSError: A package cannot be written.
    """
    if options.strategy is not None or options.most_parallel is not None:
        raise UsageError("a strategy and --max-parallel are for trainings", fix="leave them out")
    options.check_values()
    options.check_dependencies()
    options = options.with_card_count(None)
    folder = folder or Path.cwd()
    require_program(command, folder)
    require_unused_name(folder / RUNS, name)
    require_satisfiable([options.need])
    lab.ensure()
    made = (
        create_command_task(command, options, name=name, description=description, folder=folder)
        for _ in range(1)
    )
    return NewTasks(enqueue(made))


def create_command_task(
    command: Sequence[str],
    options: TaskOptions,
    *,
    name: str | None = None,
    description: str | None = None,
    folder: Path | None = None,
) -> Task:
    """Makes the package of a command; it holds no code, only what the command prints and how it ends.

    Args:
        command, options, name, description, folder: As of `submit_command`.

    Raises:
        Refused: The name is taken.
        OSError: It cannot be written.
    """
    folder = folder or Path.cwd()
    plan = command_plan(command, time_limit=options.need.time_limit, folder=folder)
    package = PackageFolder.create(
        folder / RUNS,
        name=name,
        exactly=name is not None,
        values={},
        request={
            "kind": "command",
            "command": list(command),
            "description": description or shlex.join(command),
            "project": str(folder),
            "created": round(time.time(), 3),
        },
    )
    task = new_task(package, plan, options)
    return task if name is not None else msgspec.structs.replace(task, name=_task_name(command))


def _task_name(command: Sequence[str]) -> str:
    """How the task of a command is called that nobody has given a name."""
    line = shlex.join(command)
    return line if len(line) <= _MAX_NAME_CHARS else f"{line[: _MAX_NAME_CHARS - 1]}…"


def require_program(command: Sequence[str], folder: Path) -> None:
    """Makes sure that there is the program of a command, as far as the caller sees it.

    Args:
        command: And its arguments.
        folder: Where it will run.

    Raises:
        NotFound: There is none.
        Refused: It is a file that cannot be executed.
    """
    program = command[0]
    place = str(folder / program) if "/" in program else program
    if shutil.which(place, path=callers_environment().get("PATH", os.defpath)) is not None:
        return
    if (folder / program).is_file():
        fix = f"write what runs it: `-- python {program}`; or make it executable"
        raise Refused("cannot be executed", setting="--", received=program, fix=fix)
    fix = "write it as a shell would find it, or its whole path"
    raise NotFound("there is no such program", setting="--", received=program, fix=fix)


def command_plan(command: Sequence[str], *, time_limit: float | None, folder: Path) -> Plan:
    """The plan of a command of the user, which runs where it was typed, in the environment that it had there.

    Args:
        command: And its arguments.
        time_limit: Seconds.
        folder: Where it runs.
    """
    return Plan(
        request={"kind": "command", "command": list(command)},
        argv=list(command),
        is_command=True,
        cwd=str(folder),
        env=callers_environment(),
        limits=SessionLimits(wall_seconds=time_limit)._asdict(),
    )
