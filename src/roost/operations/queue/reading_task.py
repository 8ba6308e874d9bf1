"""Tasks that only read a package: analyzers, predictions and evaluations. Each has a session folder of its
own inside the package, so that several may run beside the package's training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from roost.base.errors import UsageError
from roost.config.run_settings import RunSettings
from roost.config.sections.limits import LimitSettings
from roost.devices import inventory
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import Task
from roost.lab.sessions.session_plan import SessionPlan, callers_environment
from roost.operations import lab
from roost.operations.queue.new_tasks import NewTasks, enqueue, new_task
from roost.operations.queue.resources import (
    require_satisfiable,
    task_conditions,
    with_card_count,
)
from roost.operations.sessions.rank_layout import rank_environments
from roost.operations.sessions.session_request import WORKER, limits_of_attended, own_environment
from roost.package import session_folder
from roost.package.kinds import TASK_KINDS, KindTraits, TaskKind
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.session_schema import SessionRequest


def queue_reading_task(
    package: PackageFolder,
    kind: TaskKind,
    request: Mapping[str, Any],
    options: TaskOptions,
    settings: RunSettings | None,
    *,
    open_folder: Callable[[], SessionFolder] | None = None,
) -> NewTasks:
    """Makes the session folder of a task that reads a package, and queues the task. What the kind itself
    needs is checked by the caller before.

    Args:
        package: The package.
        kind: analyze or predict.
        request: The content of request.json in the folder, for the worker, without the device.
        options: The options of the task; ``gpus`` may be 0 or 1, or more for a kind with ranks.
        settings: Of the package.
        open_folder: Returns the session folder in place of a new one, for a task that may go on with an
            earlier one's; called after all checks.

    Raises:
        NotFound: A task that is a dependency does not exist.
        UsageError: Options contradict each other.
        Refused: The task could never start, or the folder cannot be made in the package; or the lab's folder
            cannot be used.
        RoostError: The daemon did not start.
    """
    conditions = task_conditions(options)
    options = _with_cards(options, TASK_KINDS[kind])
    counts_no_core = TASK_KINDS[kind].is_interactive and not options.gpus and options.cpus is None
    need = replace(options.need, cores=0) if counts_no_core else options.need
    require_satisfiable([need])
    lab.ensure_daemon()
    device = "auto" if options.gpus and not inventory.is_simulated() else "cpu"
    plan = _plan(kind, {**request, "device": device}, options, settings)

    def make() -> Iterator[Task]:
        body = {**request, "device": device, "created": round(time.time(), 3)}
        folder = session_folder.create(package.path, kind, body) if open_folder is None else open_folder()
        task = new_task(folder, plan, options, conditions, kind=kind)
        yield replace(task, need=need)

    return enqueue(make(), is_new=open_folder is None)


def _with_cards(options: TaskOptions, traits: KindTraits) -> TaskOptions:
    """Returns the options with the number of cards: at most one, unless the kind has ranks."""
    if options.strategy is not None or options.max_parallel is not None:
        raise UsageError("a strategy and --max-parallel apply to trainings only", fix="leave them out")
    options = with_card_count(options, None)
    if options.gpus is not None and options.gpus > 1 and not traits.may_have_ranks:
        fix = "leave it out, or give 0 for the CPU"
        raise UsageError(
            f"a task of this kind ({traits.noun}) uses one card",
            setting="--gpus",
            received=options.gpus,
            fix=fix,
        )
    return options


def _plan(
    kind: TaskKind,
    request: Mapping[str, Any],
    options: TaskOptions,
    settings: RunSettings | None,
) -> SessionPlan:
    limits = limits_of_attended(settings.limits if settings else LimitSettings())._replace(
        wall_seconds=options.time_limit, host_memory_mb=options.host_memory_mb
    )
    if TASK_KINDS[kind].is_interactive:
        limits = limits._replace(stall_seconds=None)
    command: Sequence[str] = request.get("command", ())
    ranks = options.gpus if TASK_KINDS[kind].may_have_ranks and options.gpus else 1
    layout = SessionRequest(device=str(request["device"]), ranks=ranks, cores=options.cpus)
    return SessionPlan(
        request={"kind": kind, "command": list(command), "device": request["device"]},
        argv=list(WORKER),
        env=callers_environment(),
        own_env=own_environment(cpu=request["device"] == "cpu"),
        limits=limits._asdict(),
        ranks=() if settings is None else rank_environments(layout, settings),
    )
