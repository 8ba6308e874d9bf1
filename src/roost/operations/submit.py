"""``submit``: makes packages and puts them into the lab's queue."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from roost.base import durable
from roost.base.errors import Refused, RoostError, UsageError
from roost.base.interval import parse_duration
from roost.config import layers
from roost.config.settings import Settings
from roost.lab import place, ticket
from roost.lab.plan import Plan
from roost.lab.task import LIVE, PENDING, Task, new_id
from roost.operations import intact, lab, planning, sweep
from roost.operations.check import CheckRequest
from roost.operations.continue_ import ContinueRequest, device_before, higher_limit, next_session
from roost.operations.ranks import Asked, as_before
from roost.operations.starting import take
from roost.operations.wanted import Wanted, require_possible
from roost.package import names
from roost.package.package import Package
from roost.package.prepared import PreparedTraining, prepare_training


@dataclass(frozen=True, kw_only=True)
class SubmitRequest:
    """A training that is asked for, or a sweep of them."""

    config: Path
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    """As `run` takes them, and several values of one (`roost.operations.sweep`)."""
    description: str | None = None
    name: str | None = None
    """The package's name, or the beginning of those of a sweep."""
    wanted: Wanted = field(default_factory=Wanted)
    command: Sequence[str] = ()


@dataclass(frozen=True)
class Submitted:
    """What waits now."""

    tasks: Sequence[Task]
    notes: Sequence[str] = ()
    """What a person should hear about it, one line each."""


@dataclass(frozen=True)
class Prepared:
    """A training of which everything is known, and nothing was made."""

    plan: PreparedTraining
    name: str | None
    wanted: Wanted
    session: Plan


def submit(request: SubmitRequest) -> Submitted:
    """Makes the package of each training, all or none, and queues them.

    Raises:
        NotFound: There is no such config, or no such task to wait for.
        ConfigError: The config, or a file it names, is wrong.
        UsageError: What is asked contradicts itself.
        Refused: A task could never start; or the lab will not do.
        RoostError: The daemon did not start.
        OSError: A package cannot be written.
    """
    prepared = _prepared(request)
    lab.ensure()  # before anything is made: its daemon may be of another version
    return Submitted(_queued(_made(prepared, request.command)), prepared[0].plan.left_out())


def check_request(request: SubmitRequest) -> CheckRequest:
    """What `check` is asked before: whether the first task of it would run.

    Raises:
        UsageError: The sweep means nothing.
    """
    wanted = request.wanted
    on_cpu = wanted.simulated or not (wanted.need.cards or wanted.cards_as_usual)
    return CheckRequest(
        config=request.config,
        tuning=request.tuning,
        overrides=sweep.expand(request.overrides)[0],
        device="cpu" if on_cpu else "auto",
        command=request.command,
    )


def submit_command(
    command: Sequence[str], wanted: Wanted, *, name: str | None = None, description: str | None = None
) -> Submitted:
    """Queues a command, which runs where it was typed.

    Args:
        command: And its arguments.
        wanted: What it asks of the lab.
        name: The package's; None: the time.
        description: A few words about it; None: the command itself.

    Raises:
        Refused, UsageError, NotFound, RoostError, OSError: As `submit`.
    """
    if wanted.strategy is not None or wanted.most_parallel is not None:
        raise UsageError("a strategy and --max-parallel are for trainings", fix="leave them out")
    wanted.require_sense()
    wanted = wanted.with_cards(None)
    _require_free(Path.cwd() / RUNS, name)
    require_possible([wanted.need])
    lab.ensure()
    return Submitted(
        _queued(of_command(command, wanted, name=name, description=description) for _ in range(1))
    )


def submit_continue(request: ContinueRequest, wanted: Wanted) -> Submitted:
    """Queues the next session of a package, checked as `continue` does.

    Args:
        request: As of `continue`; ``device`` is cpu, or None, and ``ranks`` does not count.
        wanted: What it asks of the lab; where it does not say, as the session before.

    Raises:
        Refused: A task of this package waits or runs, the run is finished, or as `continue`.
        NotFound, ConfigError, UsageError, RoostError, OSError: As `submit`.
    """
    if wanted.most_parallel is not None:
        raise UsageError("--max-parallel is for a sweep, and this is one task", fix="leave it out")
    package = intact.opened(request.package, to_go_on=True)
    wanted.require_sense()
    with place.alone(package.path):  # two who submit it at the same time would both see it free
        _require_unqueued(package)
        lock_fd = take(package)
        try:
            ready = next_session(package, request)
        finally:
            os.close(lock_fd)
        if ready is None:
            fix = f"to go on, {higher_limit(package)}"
            raise Refused("the run is finished, there is nothing to do", where=package.path, fix=fix)
        given = None if wanted.cards_as_usual else wanted.need.cards
        asked = as_before(Asked(devices=given or None, strategy=wanted.strategy), package, request.overrides)
        devices = asked.devices if asked.devices is not None else ready.settings.devices
        if given is None and _was_on_cpu(package):
            wanted = replace(wanted, cards_as_usual=False)
        wanted = _as_set(replace(wanted, strategy=asked.strategy), ready.settings).with_cards(devices)
        require_possible([wanted.need])
        computing = planning.computing(wanted, ready.settings, devices=devices, where=ready.where)
        session = planning.of_training(ready.body(computing), ready.settings)
        lab.ensure()
        notes = ready.announce()
        return Submitted(_queued([task_of(package, session, wanted)], is_new=False), notes)


def of_training(request: SubmitRequest) -> Iterator[Task]:
    """Makes the package of each task; first makes sure that every one of them can be made.

    Yields:
        Each task, once its package stands.

    Raises:
        NotFound: There is no such config, or no such task to wait for.
        ConfigError: The config, or a file it names, is wrong; nothing was made.
        UsageError: What is asked contradicts itself; likewise.
        Refused: A task could never start; likewise.
        OSError: A package cannot be written; what was made of it is removed.
    """
    yield from _made(_prepared(request), request.command)


RUNS = "runs"
"""Where the package of a command goes."""


def of_command(
    command: Sequence[str], wanted: Wanted, *, name: str | None = None, description: str | None = None
) -> Task:
    """Makes the package of a command; it holds no code, only what the command prints and how it ends.

    Raises:
        OSError: It cannot be written.
    """
    plan = planning.of_command(command, time_limit=wanted.need.time_limit)
    package = Package.create(
        Path.cwd() / RUNS,
        name=name,
        values={},
        request={
            "kind": "command",
            "command": list(command),
            "description": description or shlex.join(command),
            "project": str(Path.cwd()),
            "created": round(time.time(), 3),
        },
    )
    return task_of(package, plan, wanted)


def task_of(package: Package, plan: Plan, wanted: Wanted, *, array: str | None = None) -> Task:
    """The row of a package that waits."""
    now = time.time()
    return Task(
        id=new_id(now),
        name=package.path.name,
        package=str(package.path),
        user=getpass.getuser(),
        state=PENDING,
        need=wanted.need,
        priority=wanted.priority,
        submitted=now,
        begin=wanted.begin,
        after=tuple(wanted.after),
        array=array,
        most_parallel=wanted.most_parallel,
        retries=wanted.retries,
        plan=msgspec.to_builtins(plan),
    )


def _prepared(request: SubmitRequest) -> list[Prepared]:
    """Every training of what is asked, all of them checked."""
    combinations = sweep.expand(request.overrides)
    if len(combinations) == 1 and request.wanted.most_parallel is not None:
        raise UsageError("--max-parallel is for a sweep, and this is one task", fix="leave it out")
    request.wanted.require_sense()
    prepared = [_one(request, overrides) for overrides in combinations]
    if len(combinations) == 1:
        _require_free(prepared[0].plan.root, request.name)
    elif request.name is not None:
        names.checked_name(request.name)
    require_possible([one.wanted.need for one in prepared])
    return prepared


def _one(request: SubmitRequest, overrides: tuple[str, ...]) -> Prepared:
    config = layers.load(request.config, tuning=request.tuning, overrides=overrides)
    plan = prepare_training(config, description=request.description)
    settings = plan.settings
    if settings.step_mode in ("dry", "no_optim"):
        raise Refused(
            "only measures: there is no reason to wait for it",
            setting="step_mode",
            received=settings.step_mode,
            where=config.where("step_mode"),
            fix="use roost run",
        )
    wanted = _as_set(request.wanted, settings).with_cards(settings.devices)
    body = {
        "kind": "train",
        "command": list(request.command),
        "overrides": [],
        "checkpoint": None,
        "project": str(plan.project),
        **planning.computing(wanted, settings, devices=settings.devices, where=config.where),
        "description": plan.description,
        "force": False,
        "initialize": False,
        "terminal": "",
    }
    return Prepared(plan, _name(request, overrides), wanted, planning.of_training(body, settings))


def _as_set(wanted: Wanted, settings: Settings) -> Wanted:
    """With the time limit of the settings, which the supervisor keeps, and their strategy if it has none."""
    text = settings.limits.wall_time
    seconds = None if text is None else parse_duration(text, setting="limits.wall_time")
    need = msgspec.structs.replace(wanted.need, time_limit=seconds)
    return replace(wanted, need=need, strategy=wanted.strategy or settings.strategy)


def _made(prepared: Sequence[Prepared], command: Sequence[str]) -> Iterator[Task]:
    array = new_id(time.time()) if len(prepared) > 1 else None
    for one in prepared:
        package = one.plan.create(one.name, command=command)
        yield task_of(package, one.session, one.wanted, array=array)


def _name(request: SubmitRequest, overrides: Sequence[str]) -> str | None:
    """Tasks of a sweep are called by what makes them differ."""
    varied = sweep.varied(request.overrides)
    if not varied:
        return request.name
    pairs = [text.partition("=") for text in overrides]
    parts = [f"{key.rpartition('.')[2].lstrip('+')}={value}" for key, _, value in pairs if key in varied]
    return names.folder_name(" ".join(filter(None, [request.name, *parts])))


def _require_free(root: Path, name: str | None) -> None:
    """The same command typed twice is no second run of the same name."""
    if name is not None and os.path.lexists(path := root / names.checked_name(name)):
        fix = f"choose another name, or go on with it: roost submit continue {path}"
        raise Refused("there is a package of this name", setting="--name", received=name, where=root, fix=fix)


def _queued(tasks: Iterable[Task], *, is_new: bool = True) -> list[Task]:
    """Queues tasks, all or none; what was made for those that are not is removed.

    Args:
        tasks: Each is made when it is asked for.
        is_new: Whether their packages were made for them.
    """
    made: list[Task] = []
    try:
        for task in tasks:
            made.append(task)
        lab.enqueue(made)
    except BaseException:
        _take_back(made, is_new=is_new)
        raise
    return made


def _take_back(tasks: Sequence[Task], *, is_new: bool) -> None:
    # Where nobody can tell what is queued, nothing is removed: a task without its package is worse.
    with contextlib.suppress(RoostError), lab.opened() as store:
        states = store.states([task.id for task in tasks])
        for task in tasks:
            if task.id not in states and is_new:
                with contextlib.suppress(OSError):
                    durable.remove_folder(Path(task.package))
            elif task.id not in states:
                ticket.remove(task)


def _require_unqueued(package: Package) -> None:
    with lab.opened() as store:
        waiting = store.tasks(states=[PENDING, *LIVE])
    for task in waiting:
        if Path(task.package).resolve() == package.path.resolve():
            what = f"a task of this package is {task.state}: {task.id}"
            raise Refused(what, where=package.path, fix=f"wait for it, or `roost stop {task.id}`")


def _was_on_cpu(package: Package) -> bool:
    """Whether the session before had no card; of simulated ones it only says that it has them."""
    found = package.sessions()
    return device_before(package) == "cpu" and not (found and found[-1].request.get("cards"))
