"""The last steps of every operation that starts a session: the request, the environment, the supervisor."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import RoostError
from roost.base.interval import parse_duration
from roost.base.system import cpu_cores
from roost.base.system.worker_protocol import DEADLINE_VARIABLE, THREADS_VARIABLE
from roost.config.run_settings import RunSettings
from roost.config.sections.limits import LimitSettings
from roost.devices import inventory, visible_cards
from roost.devices.lease import Leases
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_plan import SessionPlan, add_session, callers_environment
from roost.operations import work_progress
from roost.operations.sessions import foreground_lease, multi_node, rank_layout, requirements
from roost.operations.sessions.foreground_lease import SessionCards
from roost.operations.sessions.program_plan import program_plan
from roost.operations.sessions.running_session import RunningSession, running_session
from roost.operations.sessions.session_deadline import (
    WALL_TIME,
    SessionDeadline,
    deadline_of,
    deadline_variables,
)
from roost.package import sessions
from roost.package.kinds import TaskKind
from roost.package.owner import takeover
from roost.package.package import PackageFolder
from roost.package.session_schema import SessionRequest
from roost.supervisor import guard_start
from roost.supervisor.guard_start import GuardProcess
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec

WORKER = (sys.executable, "-P", "-m", "roost.worker")
"""The program of a worker."""


@dataclass
class StartedSession:
    """A session that runs independently of the caller; or none, because there was nothing to do."""

    package: Path
    running: RunningSession | None = None
    """None if the run had finished before."""
    process: GuardProcess | None = None
    """The guard, for a caller that stays: it must wait for this process, or a zombie remains. When it has
    ended, every process of the session has ended."""
    is_new: bool = False
    """Whether this call made the package."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""

    @property
    def session(self) -> int | None:
        """The number of the session; None if nothing was started."""
        return self.running.number if self.running is not None else None


def require_startable(request: SessionRequest, settings: RunSettings, *, trains: bool = True) -> SessionCards:
    """Checks that a session can start, and returns its cards. To be called before anything is made for the
    session.

    Args:
        request: The request of the session.
        settings: The effective settings.
        trains: Whether it trains: what ``require`` asks for is for trainings only.

    Raises:
        Refused: The machine is not what the settings require, the deadline is past, other machines cannot
            meet this one, or another process holds its GPUs.
        UsageError: A variable that should hold the deadline does not hold a time.
        NotFound: The library for the store of the remote copy is missing.
    """
    deadline_of(settings.limits)
    if request.num_nodes > 1:
        multi_node.require_rendezvous(request)
    requirements.require_store_library(settings.remote)
    require = settings.require if trains else None
    requirements.require_versions(require)
    session_cards = foreground_lease.cards_of_session(request, requirements.card_requirement(require))
    requirements.require_cards(
        require, session_cards.cards, device=request.device, is_chosen=request.cards is not None
    )
    foreground_lease.require_free(session_cards)
    return session_cards


@contextmanager
def removed_on_failure(package: PackageFolder) -> Iterator[None]:
    """Removes a package that was just made if the block, which completes it or starts its first session,
    fails: the caller, who gets an error, would make a second one. It remains while a process has its lock."""
    try:
        yield
    except (RoostError, OSError):
        if not safe_read.is_locked(package.path / sessions.LOCK_NAME):
            with suppress(OSError):
                durable.remove_folder(package.path)
        raise


def start_first_session(
    package: PackageFolder, request: SessionRequest, settings: RunSettings, *, session_cards: SessionCards
) -> StartedSession:
    """Locks a package that was just made and starts its first session. Arguments and errors as for
    `start_session`."""
    lock_fd = lock_package(package)
    try:
        started = start_session(package, lock_fd, request, settings, session_cards=session_cards)
    finally:
        os.close(lock_fd)
    started.is_new = True
    return started


def start_session(
    package: PackageFolder,
    lock_fd: int,
    request: SessionRequest,
    settings: RunSettings,
    *,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - immutable
    steal: bool = False,
) -> StartedSession:
    """Adds a session to a package and starts it.

    Args:
        package: The package.
        lock_fd: Holds the lock of the package. The supervisor gets a copy; the caller then closes its own,
            which would keep the package locked after the run.
        request: The request of the session.
        settings: The effective settings.
        session_cards: As returned by `require_startable`.
        steal: Whether to take the package over from a living session of another machine.

    Raises:
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
        Refused: The deadline is past, or another process has taken the GPUs or the package meanwhile.
    """
    deadline = deadline_of(settings.limits)
    deadline.notes.extend(session_cards.notes)
    token = secrets.token_hex(16)
    taken_over = takeover.take_over(package.path, steal=steal, token=token, report=work_progress.report)
    if taken_over is not None:
        request.taken_over = taken_over
        deadline.notes.append(taken_over)
    cards = session_cards.ids if session_cards.hide_others else request.cards
    with closing(foreground_lease.take_leases(session_cards, package.path)) as leases:
        return _start_with_leases(package, lock_fd, request, settings, deadline, leases, cards, token)


def _start_with_leases(
    package: PackageFolder,
    lock_fd: int,
    request: SessionRequest,
    settings: RunSettings,
    deadline: SessionDeadline,
    leases: Leases,
    cards: Sequence[str] | None,
    token: str,
) -> StartedSession:
    num_nodes = request.num_nodes
    plan = session_plan(request, settings)
    if num_nodes > 1:
        argv, added = multi_node.torchrun_launch(request, plan.ranks[0], token=token, is_host=True)
        own_env = {**plan.own_env, **added}
        plan = msgspec.structs.replace(plan, argv=argv, own_env=own_env, ranks=(), is_launcher=True)
        deadline.notes.append(_join_note(num_nodes, package))
    plan.limits["wall_seconds"] = seconds_until_stop(
        deadline, plan.limits["grace_seconds"] if plan.is_command else 0.0
    )
    offset = output_size(package.output)
    spec = add_session(
        package,
        plan,
        cards=None if request.device == "cpu" else cards,
        core_ids=free_cores(request.cores),
        leases=leases if leases.fds else None,
        deadline=deadline.at,
        token=token,
        is_queued=False,
    )
    process = guard_start.start_session(spec, lock_fd=lock_fd).process
    running = running_session(package, spec.session, offset=offset)
    return StartedSession(package.path, running, process, notes=deadline.notes)


def first_request(
    project: Path,
    layout: Mapping[str, Any],
    *,
    command: Sequence[str],
    description: str | None,
    initialize: bool = False,
    terminal: str = "",
) -> SessionRequest:
    """Returns the request of a new package's first session. Its settings are in args.json.

    Args:
        project: The folder of the code.
        layout: The part of the request about devices and ranks.
        command: The command line as typed.
        description: A few words of the user.
        initialize: Whether the session ends at step 0.
        terminal: The path of the terminal that the session has for itself, if any.
    """
    return SessionRequest(
        kind=TaskKind.TRAIN,
        command=list(command),
        overrides=[],
        checkpoint=None,
        project=str(project),
        **layout,
        description=description,
        force=False,
        initialize=initialize,
        terminal=terminal,
    )


def session_plan(body: SessionRequest, settings: RunSettings) -> SessionPlan:
    """Returns the session plan of a training, or of a program.

    Args:
        body: The request of the session, including its layout of ranks.
        settings: The effective settings.
    """
    if body.kind == TaskKind.COMMAND:
        return program_plan(
            body,
            limits=supervisor_limits(settings.limits)._replace(host_memory_mb=body.host_memory_mb),
            own_env={**threads_of(body.cores), **deadline_variables(settings.limits)},
            restart=body.restart,
        )
    remote = None if settings.remote is None else msgspec.to_builtins(settings.remote)
    return SessionPlan(
        request={**body, **({"remote": remote} if remote is not None else {})},
        argv=list(WORKER),
        env=callers_environment(),
        own_env={
            **own_environment(cpu=body.device == "cpu"),
            **threads_of(body.cores),
            **deadline_variables(settings.limits),
        },
        limits=supervisor_limits(settings.limits)._replace(host_memory_mb=body.host_memory_mb)._asdict(),
        ranks=rank_layout.rank_environments(body, settings),
        restart=body.restart,
    )


def free_cores(count: int | None) -> tuple[int, ...]:
    """Returns cores for a session at a terminal: those to which no other process is bound, as far as there
    are any."""
    return () if count is None else cpu_cores.choose_cores(count, taken=cpu_cores.bound_cores())


def threads_of(cores: int | None) -> dict[str, str]:
    """Returns the variable that bounds the threads of a session with a number of cores, unless the caller has
    set it."""
    return {} if cores is None or THREADS_VARIABLE in os.environ else {THREADS_VARIABLE: str(cores)}


def seconds_until_stop(deadline: SessionDeadline, grace_seconds: float) -> float | None:
    """Returns after how many seconds the supervisor asks a session to stop. A program, which gets a signal
    only, needs its grace time before a moment at which the machine itself ends; a training stops on its
    own, earlier than this."""
    left = deadline.seconds_left()
    if left is None or deadline.source == WALL_TIME:
        return left
    return left - min(grace_seconds, left / 2)


def _join_note(num_nodes: int, package: PackageFolder) -> str:
    others = "the other machine" if num_nodes == 2 else f"each of the other {num_nodes - 1} machines"
    return f"on {others} run: roost join {quote(str(package.path))}"


def output_size(path: Path) -> int:
    """Returns the size of an output file: a new session appends from there on."""
    return path.stat().st_size if path.exists() else 0


def start_worker(
    running: RunningSession,
    task: str,
    *,
    token: str,
    lock_fd: int | None,
    cpu: bool,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    deadline: float | None = None,
    argv: Sequence[str] | None = None,
    added: Mapping[str, str] | None = None,
    **spec: Any,
) -> GuardProcess:
    """Starts a worker under a supervisor without adding a session to its package; returns the guard, for
    which the caller waits.

    Args:
        running: The files of the worker.
        task: The argument of the worker after the package: what to do.
        token: The token in the request.
        lock_fd: Holds the lock of the package; None for a worker that takes none.
        cpu: Whether to hide all GPUs.
        cards: The visible GPUs, by their ids in CUDA_VISIBLE_DEVICES; None: those of the caller.
        leases: The leases of its GPUs; the supervisor gets copies of their descriptors.
        deadline: Unix seconds by which it must have ended; None: no deadline.
        argv: The program to run in place of the worker, which starts the worker; gets the worker's arguments.
        added: Additions to the environment.
        spec: Further fields of `SessionSpec`.

    Raises:
        RoostError: The supervisor did not start.
    """
    package = str(running.package)
    given = SessionSpec(
        argv=[*(argv or WORKER), package, task],
        cwd=package,
        env={
            **worker_environment(cpu=cpu, cards=cards, deadline=deadline),
            **(leases.environment() if leases is not None and leases.fds else {}),
            **(added or {}),
        },
        package=package,
        session=running.number,
        output=str(running.output),
        session_file=str(running.record),
        token=token,
        lease_fds=leases.fds if leases is not None else (),
        **spec,
    )
    return guard_start.start_session(given, lock_fd=lock_fd).process


def lock_package(package: PackageFolder, *, steal: bool = False) -> int:
    """Takes the lock of the package, after completing the record of a session that was killed.

    Args:
        package: The package.
        steal: Whether its session may take the package over from a living one of another machine;
            `start_session` does it.

    Raises:
        Refused: Another process writes to the package, on this machine or on another one.
    """
    end_abandoned(package)
    lock_fd = package.lock()
    try:
        if not steal:
            takeover.require_no_owner(package.path, report=work_progress.report)
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd


def supervisor_limits(settings: LimitSettings) -> SessionLimits:
    """Converts the section ``limits`` to the seconds and bytes that the supervisor enforces."""
    return SessionLimits(
        wall_seconds=_seconds(settings.wall_time, "limits.wall_time"),
        grace_seconds=parse_duration(settings.grace, setting="limits.grace"),
        core_bytes=settings.core_mb * 2**20,
        output_bytes=settings.output_mb * 2**20,
        stall_seconds=_seconds(settings.stall_timeout, "limits.stall_timeout"),
        end_stalled=settings.on_stall == "end",
    )


def limits_of_attended(settings: LimitSettings) -> SessionLimits:
    """Returns the limits of a worker whose caller waits for it and ends it: without the wall time of a
    training, and without an end for a stall."""
    return supervisor_limits(settings)._replace(wall_seconds=None, end_stalled=False)


def _seconds(duration: str | None, setting: str) -> float | None:
    return None if duration is None else parse_duration(duration, setting=setting)


def worker_environment(
    *, cpu: bool, cards: Sequence[str] | None = None, deadline: float | None = None
) -> dict[str, str]:
    """Returns the environment of the worker: the caller's with roost's additions. Without a deadline the
    caller's deadline counts."""
    by = f"{deadline:.3f}" if deadline is not None else os.environ.get(DEADLINE_VARIABLE)
    return {
        **callers_environment(),
        **own_environment(cpu=cpu, cards=cards),
        **({DEADLINE_VARIABLE: by} if by else {}),
    }


def own_environment(*, cpu: bool, cards: Sequence[str] | None = None) -> dict[str, str]:
    """Returns the variables that make a run repeatable, and those that choose its GPUs.

    All runs use one hash seed: the order of a Python set must be the same again, and a template process for
    warm starts, whose seed is fixed at its start, must serve runs of every seed.

    No bytecode is written, so none gets into the package. PYTHONPYCACHEPREFIX would redirect it, but torch's
    modules would then be compiled again: 1.3 s more, and that at every start where bytecode is switched off.

    CUDA counts cards as nvidia-smi and the leases do, unless the caller has chosen its order: by default it
    counts the fastest one first, so that with unlike cards a run would compute on another one than it leased.
    """
    visible = [] if cpu or inventory.excludes_real_cards() else cards
    return {
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        visible_cards.ORDER_VARIABLE: os.environ.get(visible_cards.ORDER_VARIABLE, "PCI_BUS_ID"),
        **({visible_cards.VARIABLE: ",".join(visible)} if visible is not None else {}),
    }
