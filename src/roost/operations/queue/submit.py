"""The operation ``submit``: makes the packages of trainings and queues them as tasks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from roost.base import durable
from roost.base.errors import ConfigError, Refused, UsageError
from roost.base.interval import parse_duration
from roost.base.system import state_folder
from roost.config import layers
from roost.config.dlnest.dlnest_settings import SECTION
from roost.config.layers import Config
from roost.config.run_settings import RunSettings
from roost.config.sections.staging import Stage
from roost.devices import inventory
from roost.devices.resource_request import TaskOptions, TrainingTaskOptions
from roost.lab.queue.task import Task, new_id
from roost.lab.sessions.session_plan import SessionPlan
from roost.operations import lab
from roost.operations.evaluating.evaluation_request import EvaluateRequest, follow_training, read_variants
from roost.operations.lifecycle.check import CheckRequest
from roost.operations.lifecycle.continue_ import (
    ContinueRequest,
    next_session,
    nothing_to_train,
)
from roost.operations.programs.submit_program import submit_continue_program
from roost.operations.queue import sweep
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
from roost.operations.reading import package_schema
from roost.operations.sessions import archive_requirements, requirements
from roost.operations.sessions.rank_layout import (
    RankRequest,
    previous_device,
    queued_ranks,
    with_previous_layout,
)
from roost.operations.sessions.session_request import first_request, lock_package, session_plan
from roost.package import package_name
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.package_draft import TrainingDraft, prepare_training

_MAX_THREADS = 8
_SEEDS = ("seed", f"{SECTION}.seed")


@dataclass(frozen=True, kw_only=True)
class SubmitRequest:
    """A request to queue one training, or a sweep of trainings."""

    config: Path
    project: Path | None = None
    """The folder of the code; None: that of the config (`roost.config.project_folder`)."""
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    """As for `run`; an override may also name several values (`roost.operations.queue.sweep`)."""
    description: str | None = None
    name: str | None = None
    """The name of the package, or the prefix of the names of a sweep's packages."""
    with_suffix: bool = False
    """Whether a name that is in use gets a suffix, as in `run -ns`, instead of being refused."""
    evaluate: EvaluateRequest | None = None
    """The evaluation that follows each training; its package is the new one."""
    options: TaskOptions = TaskOptions()  # noqa: RUF009  - immutable
    command: Sequence[str] = ()
    requested: float = field(default_factory=time.time)
    """When the request was made, in Unix seconds: from then on counts a begin time like ``+2h``."""


@dataclass(frozen=True)
class PreparedTask:
    """A checked training; nothing of it is on disk yet."""

    plan: TrainingDraft
    name: str | None
    options: TaskOptions
    session: SessionPlan


def _ignore(_: str) -> None:
    return None


def submit(request: SubmitRequest, *, report: Callable[[str], None] = _ignore) -> NewTasks:
    """Makes the package of each training, all or none, and queues the tasks.

    Args:
        request: What to submit.
        report: Called with a line of progress at each task of a sweep.

    Raises:
        NotFound: The config, an archive of ``data.stage``, or a task that is a dependency, does not exist.
        ConfigError: The config, or a file it names, is wrong.
        UsageError: Options contradict each other.
        Refused: A task could never start; or the lab's folder cannot be used.
        RoostError: The daemon did not start.
        OSError: A package cannot be written.
    """
    if request.evaluate is not None:
        read_variants(request.evaluate.variants)  # before anything is made
    conditions = task_conditions(request.options, requested=request.requested)
    prepared = _prepare(request, report)
    if not conditions.has_dependencies:  # else another task may make the archives
        _require_archives([one.plan for one in prepared])
    lab.ensure_daemon()  # before anything is made, because the running daemon may be of another version
    notes = prepared[0].plan.notes(is_check=False)
    return enqueue(_create_tasks(prepared, request, conditions, report)).with_notes(notes)


def check_requests(request: SubmitRequest) -> list[CheckRequest]:
    """Returns the requests of `check` that precede a submission; for a sweep, requests in which each value of
    each setting but the seed occurs once.

    Raises:
        NotFound, ConfigError, UsageError, Refused: As for `submit`: what needs no check is refused before the
            checks, which take long.
    """
    task_conditions(request.options, requested=request.requested)
    _prepare(request, _ignore)
    on_cpu = inventory.is_simulated() or request.options.gpus == 0
    return [
        CheckRequest(
            config=request.config,
            project=request.project,
            tuning=request.tuning,
            overrides=overrides,
            device="cpu" if on_cpu else "auto",
            command=request.command,
        )
        for overrides in sweep.covering_combinations(request.overrides, fixed_keys=_SEEDS)
    ]


def submit_continue(request: ContinueRequest, options: TaskOptions) -> NewTasks:
    """Queues the next session of a package, after the same checks as `continue`.

    Args:
        request: As for `continue`; ``device`` is cpu or None, and ``ranks`` is ignored.
        options: The options of the task; where one is not set, that of the session before counts.

    Raises:
        Refused: A task of this package is pending or running, the run is finished, or as for `continue`.
        NotFound, ConfigError, UsageError, RoostError, OSError: As for `submit`.
    """
    if options.max_parallel is not None:
        raise _not_a_sweep()
    package = package_schema.open_checked(request.package, to_continue=True)
    if PackageKind.of(package.request) is PackageKind.COMMAND:
        return submit_continue_program(package, request, options)
    conditions = task_conditions(options)
    with state_folder.exclusive_lock(
        package.path
    ):  # two submissions at the same time would both find no task of it
        require_unqueued(package.path)
        lock_fd = lock_package(package)
        try:
            ready = next_session(package, request)
        finally:
            os.close(lock_fd)
        if ready is None:
            what, fix = nothing_to_train(package, request.overrides, command="roost submit continue")
            raise Refused(what, where=package.path, fix=fix)
        ranks = with_previous_layout(
            RankRequest(devices=options.gpus or None, strategy=options.strategy), package, request.overrides
        )
        devices = ranks.devices if ranks.devices is not None else ready.settings.devices
        if options.gpus is None and _was_on_cpu(package):
            options = replace(options, gpus=0)
        options = _with_settings(replace(options, strategy=ranks.strategy), ready.settings)
        options, notes = with_previous_share(with_card_count(options, devices), package.path)
        _require_possible(options, ready.settings)
        layout = queued_ranks(options, ready.settings, devices=devices, where=ready.where)
        session = session_plan(ready.request_body(layout), ready.settings)
        lab.ensure_daemon()
        notes = [*notes, *ready.prepare_package()]
        task = new_task(package, session, options, conditions)
        return enqueue([task], is_new=False).with_notes(notes)


def _prepare(request: SubmitRequest, report: Callable[[str], None]) -> list[PreparedTask]:
    """Returns all trainings of a request, checked."""
    combinations = sweep.expand(request.overrides)
    if len(combinations) == 1 and request.options.max_parallel is not None:
        raise _not_a_sweep()
    files, prepared = layers.load_files(request.config, tuning=request.tuning), list[PreparedTask]()
    for overrides in combinations:
        like = prepared[0].plan if prepared else None
        try:
            prepared.append(_prepare_one(request, overrides, files.config(overrides), like))
        except ConfigError as error:
            raise sweep.with_all_values(error, request.overrides, overrides) from error
        report(f"{len(prepared)} of {len(combinations)} tasks checked")
    if len(combinations) == 1 and not request.with_suffix:
        require_unused_name(prepared[0].plan.root, request.name)
    elif request.name is not None:
        package_name.checked_name(request.name)
    require_satisfiable([one.options.need for one in prepared])
    return prepared


def _prepare_one(
    request: SubmitRequest, overrides: Sequence[str], config: Config, like: TrainingDraft | None
) -> PreparedTask:
    plan = prepare_training(config, project=request.project, description=request.description, like=like)
    settings = plan.settings
    if not settings.trains:
        raise Refused(
            "only measures, so it need not wait in the queue",
            setting="step_mode",
            received=config.values.get("step_mode"),
            where=config.where("step_mode"),
            fix="use `roost run`",
        )
    options = with_card_count(_with_settings(request.options, settings), settings.devices)
    if like is None:  # before queued_ranks compares the settings with cards that no machine has
        _require_possible(options, settings)
    layout = queued_ranks(options, settings, devices=settings.devices, where=config.where)
    body = first_request(plan.project, layout, command=request.command, description=plan.description)
    return PreparedTask(plan, _package_name(request, overrides), options, session_plan(body, settings))


def _require_archives(plans: Iterable[TrainingDraft]) -> None:
    """Checks that the archives are staged here or can be opened; those that trainings share, once.

    Raises:
        RoostError: As `roost.operations.sessions.archive_requirements.require_archives`.
    """
    checked = list[tuple[Path, Stage]]()
    for plan in plans:
        found = (plan.project, archive_requirements.stage_of(plan.settings))
        if found not in checked:
            archive_requirements.require_archives(
                plan.settings, project=plan.project, where=plan.config.where
            )
            checked.append(found)


def _require_possible(options: TaskOptions, settings: RunSettings) -> None:
    """Checks that this machine has what a training requests, whatever runs now.

    Raises:
        Refused: It lacks that, or the settings require a card and the task computes on the CPU.
    """
    if settings.require is not None and not options.gpus:
        device = "cpu" if inventory.read_cards() else "auto"
        requirements.require_cards(settings.require, (), device=device)
    require_satisfiable([options.need])


def _with_settings(options: TaskOptions, settings: RunSettings) -> TaskOptions:
    """Returns the options with the time limit of the settings, which the supervisor enforces, with their
    strategy unless the options have one, and with the cards that they require.

    Raises:
        Refused: The settings require another version of torch or CUDA.
        ConfigError: What they require cannot be read.
        NotFound: The library for the store of the remote copy is missing.
    """
    text = settings.limits.wall_time
    seconds = None if text is None else parse_duration(text, setting="limits.wall_time")
    requirements.require_versions(settings.require)
    requirements.require_store_library(settings.remote)
    with_settings = replace(options, time_limit=seconds, strategy=options.strategy or settings.strategy)
    return TrainingTaskOptions.of(with_settings, requirements.card_requirement(settings.require))


def _create_tasks(
    prepared: Sequence[PreparedTask],
    request: SubmitRequest,
    conditions: TaskConditions,
    report: Callable[[str], None],
) -> Iterator[Task]:
    sweep_id, sweep_name = (new_id(time.time()), request.name) if len(prepared) > 1 else (None, None)
    plans = [(one.plan, one.name) for one in prepared]
    created = create_packages(plans, exactly=not request.with_suffix, command=request.command, report=report)
    with contextlib.closing(created) as packages:
        for one, package in zip(prepared, packages, strict=True):
            if request.evaluate is not None:
                follow_training(package, request.evaluate)
            yield new_task(
                package, one.session, one.options, conditions, sweep=sweep_id, sweep_name=sweep_name
            )


def create_packages(
    plans: Sequence[tuple[TrainingDraft, str | None]],
    *,
    command: Sequence[str],
    exactly: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> Generator[PackageFolder]:
    """Makes the packages of a sweep, with several threads, because most of the time goes into waiting for the
    disk. If the caller closes the generator early, packages that it has not
    received are removed.

    Args:
        plans: What each package is made of, and its name.
        command: The command line as typed.
        exactly: Whether the name of a single package is refused if it is in use; otherwise it gets a suffix,
            as names of several do.
        report: Called with a line of progress for each package.

    Yields:
        The packages, in the order of ``plans``.

    Raises:
        Refused: The name is in use.
        OSError: A package cannot be written.
    """
    (plan, name), *others = plans
    first = plan.create(name, exactly=exactly and name is not None and not others, command=command)
    yield first
    if not others:
        return
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        making = [pool.submit(plan.create, name, command=command, like=first) for plan, name in others]
        num_taken = 0
        try:
            for number, one in enumerate(making, 2):
                package = one.result()
                report(f"{number} of {len(plans)} packages made")
                num_taken += 1
                yield package
        finally:
            _remove_packages(making[num_taken:])


def _remove_packages(making: Sequence[Future[PackageFolder]]) -> None:
    """Cancels the packages that are being made and removes the finished ones; a failed one has removed
    itself."""
    for one in making:
        one.cancel()
    for one in making:
        if not one.cancelled() and one.exception() is None:
            with contextlib.suppress(OSError):  # the folder remains; no task runs it
                durable.remove_folder(one.result().path)


def _not_a_sweep() -> UsageError:
    return UsageError("--max-parallel is for a sweep, and this is one task", fix="leave it out")


def _package_name(request: SubmitRequest, overrides: Sequence[str]) -> str | None:
    """Returns the name of a package; that of a sweep's task ends with the values that make it differ."""
    label = sweep.label(request.overrides, overrides)
    return package_name.folder_name("_".join(filter(None, [request.name, label]))) if label else request.name


def _was_on_cpu(package: PackageFolder) -> bool:
    """Whether the session before had no card. With simulated cards the device is always cpu, and only
    ``cards`` says that there were some."""
    found = package.sessions()
    return previous_device(package) == "cpu" and not (found and found[-1].request.cards)
