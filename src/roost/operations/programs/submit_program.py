"""The operation ``submit -- COMMAND``: queues a program of the user. This module does not import what
trainings need."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from roost.base.errors import UsageError
from roost.base.system import state_folder
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import Task
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.operations import lab, work_progress
from roost.operations.programs.program_package import (
    ProgramDraft,
    TypedProgram,
    prepare_program,
    require_archives,
    require_time_limit_only,
)
from roost.operations.queue.new_tasks import (
    NewTasks,
    enqueue,
    new_task,
    require_unqueued,
    require_unused_name,
)
from roost.operations.queue.resources import (
    TaskConditions,
    require_satisfiable,
    task_conditions,
    with_card_count,
    with_previous_share,
)
from roost.operations.sessions.program_plan import program_plan, program_session
from roost.package.kinds import TaskKind
from roost.package.owner import takeover
from roost.package.package import PackageFolder
from roost.package.program_request import ProgramRequest
from roost.supervisor.limits import SessionLimits

if TYPE_CHECKING:
    from roost.operations.lifecycle.continue_ import ContinueRequest

_MAX_NAME_CHARS = 48
"""The length of a command line in the name of its task."""


def submit_program(program: TypedProgram, options: TaskOptions) -> NewTasks:
    """Makes the package of a program, with a copy of its code, and queues it.

    Args:
        program: The program.
        options: The options of the task.

    Raises:
        NotFound: The program, its source, an archive of ``--stage``, or a task that is a dependency, does not
            exist.
        UsageError: Options contradict each other.
        Refused: The code is not copied, by the rule of `roost.operations.programs.program_source`; a task
            could never start; or the lab's folder cannot be used.
        RoostError: The daemon did not start.
        OSError: A package cannot be written.
    """
    if options.strategy is not None or options.max_parallel is not None:
        raise UsageError("a strategy and --max-parallel apply to trainings only", fix="leave them out")
    conditions = task_conditions(options)
    options = with_card_count(options, None)
    with prepare_program(program) as draft:
        require_unused_name(draft.root, program.name)
        require_satisfiable([options.need])
        if not conditions.has_dependencies:  # else another task may make the archives
            require_archives(draft.request)
        lab.ensure_daemon()
        # An iterator, so that `enqueue` removes the package if it cannot be queued.
        tasks = (create_program_task(draft, options, conditions) for _ in range(1))
        return enqueue(tasks).with_notes(draft.source.notes)


def submit_continue_program(
    package: PackageFolder, request: ContinueRequest, options: TaskOptions
) -> NewTasks:
    """Queues the next session of the package of a program.

    Args:
        package: The package.
        request: The request; of its overrides only the time limit applies.
        options: The options of the task; where one is not set, that of the session before counts.

    Raises:
        UsageError: The request has what applies to trainings only.
        Refused: A task of this package is pending or running; or the package is in use.
        NotFound, RoostError, OSError: As for `submit_program`.
    """
    require_time_limit_only(request)
    conditions = task_conditions(options)
    options, notes = with_previous_share(with_card_count(options, None), package.path)
    require_satisfiable([options.need])
    with state_folder.exclusive_lock(package.path):
        require_unqueued(package.path)
        end_abandoned(package)
        os.close(package.lock())  # refused while a session runs
        takeover.require_no_owner(package.path, report=work_progress.report)
        program = ProgramRequest.of(package.request)
        lab.ensure_daemon()
        task = _new_task(package, program, options, conditions)
        return enqueue([task], is_new=False).with_notes(notes)


def create_program_task(draft: ProgramDraft, options: TaskOptions, conditions: TaskConditions) -> Task:
    """Makes the package of a program and returns its row.

    Raises:
        Refused: The name is in use.
        OSError: The package cannot be written.
    """
    task = _new_task(draft.create(), draft.request, options, conditions)
    if draft.options.name is not None:
        return task
    return msgspec.structs.replace(task, name=_task_name(draft.options.command))


def _new_task(
    package: PackageFolder, program: ProgramRequest, options: TaskOptions, conditions: TaskConditions
) -> Task:
    limits = SessionLimits(wall_seconds=options.time_limit, host_memory_mb=options.host_memory_mb)
    plan = program_plan(program_session(program, {}), limits=limits)
    return new_task(package, plan, options, conditions, kind=TaskKind.COMMAND)


def _task_name(command: Sequence[str]) -> str:
    """Returns the name of a command's task where the user gave none: the command line, shortened."""
    line = shlex.join(command)
    return line if len(line) <= _MAX_NAME_CHARS else f"{line[: _MAX_NAME_CHARS - 1]}…"
