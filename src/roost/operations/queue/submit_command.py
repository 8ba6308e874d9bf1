"""The operation ``submit -- COMMAND``: queues any command of the user as a task. This module does not import
what trainings need."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from roost.base.errors import NotFound, Refused, UsageError
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import Task
from roost.lab.sessions.session_plan import SessionPlan, callers_environment
from roost.operations import lab
from roost.operations.queue.new_tasks import NewTasks, enqueue, new_task, require_unused_name
from roost.operations.queue.resources import (
    TaskConditions,
    require_satisfiable,
    task_conditions,
    with_card_count,
)
from roost.operations.resolve import RUNS_FOLDER
from roost.package.kinds import PackageKind, TaskKind
from roost.package.package import PackageFolder
from roost.supervisor.limits import SessionLimits

_MAX_NAME_CHARS = 48
"""The length of a command line in the name of its task."""


def submit_command(
    command: Sequence[str],
    options: TaskOptions,
    *,
    name: str | None = None,
    description: str | None = None,
    folder: Path | None = None,
) -> NewTasks:
    """Queues a command, which runs in the folder in which it was typed.

    Args:
        command: The program and its arguments.
        options: The options of the task.
        name: The name of the package; None: the time.
        description: A few words about the task; None: the command line.
        folder: The working directory; None: the current one.

    Raises:
        NotFound: The program, or a task that is a dependency, does not exist.
        UsageError: Options contradict each other.
        Refused: A task could never start; or the lab's folder cannot be used.
        RoostError: The daemon did not start.
        OSError: A package cannot be written.
    """
    if options.strategy is not None or options.max_parallel is not None:
        raise UsageError("a strategy and --max-parallel apply to trainings only", fix="leave them out")
    conditions = task_conditions(options)
    options = with_card_count(options, None)
    folder = folder or Path.cwd()
    require_program(command, folder)
    require_unused_name(folder / RUNS_FOLDER, name)
    require_satisfiable([options.need])
    lab.ensure_daemon()
    made = (
        create_command_task(command, options, conditions, name=name, description=description, folder=folder)
        for _ in range(1)
    )
    return enqueue(made)


def create_command_task(
    command: Sequence[str],
    options: TaskOptions,
    conditions: TaskConditions,
    *,
    name: str | None = None,
    description: str | None = None,
    folder: Path | None = None,
) -> Task:
    """Makes the package of a command and returns its row. The package has no code; it holds the output of the
    command and its outcome.

    Raises:
        Refused: The name is in use.
        OSError: The package cannot be written.
    """
    folder = folder or Path.cwd()
    plan = command_plan(
        command, time_limit=options.time_limit, folder=folder, host_memory_mb=options.host_memory_mb
    )
    package = PackageFolder.create(
        folder / RUNS_FOLDER,
        name=name,
        exactly=name is not None,
        values={},
        request={
            "kind": PackageKind.COMMAND,
            "command": list(command),
            "description": description or shlex.join(command),
            "project": str(folder),
            "created": round(time.time(), 3),
        },
    )
    task = new_task(package, plan, options, conditions, kind=TaskKind.COMMAND)
    return task if name is not None else msgspec.structs.replace(task, name=_task_name(command))


def _task_name(command: Sequence[str]) -> str:
    """Returns the name of a command's task where the user gave none: the command line, shortened."""
    line = shlex.join(command)
    return line if len(line) <= _MAX_NAME_CHARS else f"{line[: _MAX_NAME_CHARS - 1]}…"


def require_program(command: Sequence[str], folder: Path) -> None:
    """Checks that the program of a command exists, as far as the caller can see it.

    Args:
        command: The program and its arguments.
        folder: The working directory of the command.

    Raises:
        NotFound: The program does not exist.
        Refused: The program is a file that cannot be executed.
    """
    program = command[0]
    place = str(folder / program) if "/" in program else program
    if shutil.which(place, path=callers_environment().get("PATH", os.defpath)) is not None:
        return
    if (folder / program).is_file():
        fix = f"name the interpreter: `-- python {program}`; or make the file executable"
        raise Refused("cannot be executed", setting="--", received=program, fix=fix)
    fix = "write the program as a shell would find it, or its whole path"
    raise NotFound("there is no such program", setting="--", received=program, fix=fix)


def command_plan(
    command: Sequence[str], *, time_limit: float | None, folder: Path, host_memory_mb: int | None = None
) -> SessionPlan:
    """Returns the session plan of a command of the user, with the caller's environment.

    Args:
        command: The program and its arguments.
        time_limit: Seconds.
        folder: The working directory.
        host_memory_mb: The memory of the machine that its processes may use together; None: no limit.
    """
    return SessionPlan(
        request={"kind": TaskKind.COMMAND, "command": list(command)},
        argv=list(command),
        is_command=True,
        cwd=str(folder),
        env=callers_environment(),
        limits=SessionLimits(wall_seconds=time_limit, host_memory_mb=host_memory_mb)._asdict(),
    )
