"""The last steps of everything that starts a session: its request, its environment, its supervisor."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from roost.base.interval import parse_duration
from roost.base.system.worker_protocol import DEADLINE_VARIABLE
from roost.config.sections.limits import LimitSettings
from roost.config.settings import Settings
from roost.devices import inventory, visible_cards
from roost.devices.lease import Leases
from roost.lab.sessions import session_start
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_plan import Plan
from roost.operations.sessions import foreground_lease, multi_node, rank_layout
from roost.operations.sessions.caller_environment import callers_environment
from roost.operations.sessions.foreground_lease import SessionCards
from roost.operations.sessions.running_session import RunningSession, running_session
from roost.operations.sessions.session_deadline import SessionDeadline, deadline_of
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from roost.supervisor.guard_start import GuardProcess
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec

_WORKER = (sys.executable, "-P", "-m", "roost.worker")


@dataclass
class StartedSession:
    """What runs by itself from now on; or nothing, because there was nothing to do."""

    package: Path
    running: RunningSession | None = None
    """None when the run had ended before."""
    process: GuardProcess | None = None
    """For whoever stays: to be waited for, or a zombie remains. Its end is that of everything it started."""
    is_new: bool = False
    """Whether the package was made by this call."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear about it, one line each."""

    @property
    def session(self) -> int | None:
        """The session's number; None when nothing was started."""
        return self.running.number if self.running is not None else None


def require_startable(request: Mapping[str, Any], settings: Settings) -> SessionCards:
    """Makes sure that a session can begin; to be called before anything is made for it. Gives the GPUs that
    it needs.

    Args:
        request: What is asked of it.
        settings: Those in effect.

    Raises:
        Refused: The time by which it must have ended is past, other machines cannot meet this one, or
            somebody else holds its GPUs.
        UsageError: A variable with that time holds none.
    """
    deadline_of(settings.limits)
    if int(request.get("num_nodes", 1)) > 1:
        multi_node.require_rendezvous(request)
    session_cards = foreground_lease.cards_of_session(request)
    foreground_lease.require_unleased(session_cards.cards)
    return session_cards


def start_session(
    package: PackageFolder,
    lock_fd: int,
    request: Mapping[str, Any],
    settings: Settings,
    *,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - cannot be changed
) -> StartedSession:
    """Adds a session to a package and starts it.

    Args:
        package: The package.
        lock_fd: Holds the package's lock. The supervisor gets a copy; the caller then closes its own, which
            would keep the package locked after the run.
        request: What is asked of this session.
        settings: Those in effect.
        needed: As `require_startable` gave it.

    Raises:
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
        Refused: The time by which it must have ended is past, or somebody has taken its GPUs meanwhile.
    """
    ends = deadline_of(settings.limits)
    ends.notes.extend(session_cards.notes)
    cards = session_cards.ids if session_cards.hide_others else request.get("cards")
    with closing(foreground_lease.take_leases(session_cards.cards, package.path)) as leases:
        return _start_with_leases(package, lock_fd, request, settings, ends, leases, cards)


def _start_with_leases(
    package: PackageFolder,
    lock_fd: int,
    request: Mapping[str, Any],
    settings: Settings,
    ends: SessionDeadline,
    leases: Leases,
    cards: Sequence[str] | None,
) -> StartedSession:
    several = int(request.get("num_nodes", 1))
    token = secrets.token_hex(16)
    plan = session_plan(request, settings)
    if several > 1:
        argv, added = multi_node.torchrun_launch(request, plan.ranks[0], token=token, is_host=True)
        own_env = {**plan.own_env, **added}
        plan = msgspec.structs.replace(plan, argv=argv, own_env=own_env, ranks=(), is_launcher=True)
        ends.notes.append(_join_note(several, package))
    plan.limits["wall_seconds"] = ends.seconds_left()
    offset = output_size(package.output)
    begun = session_start.begin(
        package,
        lock_fd,
        plan,
        cards=None if request.get("device") == "cpu" else cards,
        leases=leases if leases.fds else None,
        deadline=ends.at,
        token=token,
    )
    running = running_session(package, begun.number, offset=offset)
    return StartedSession(package.path, running, begun.supervised.process, notes=ends.notes)


def first_request(
    project: Path,
    computing: Mapping[str, Any],
    *,
    command: Sequence[str],
    description: str | None,
    initialize: bool = False,
    terminal: str = "",
) -> dict[str, Any]:
    """The request of a new package's first session; what was asked of its settings is in its args.json.

    Args:
        project: The folder of its code.
        computing: The part that tells what it computes with.
        command: As it was typed.
        description: A few words of the user.
        initialize: Whether it ends at step 0.
        terminal: The terminal that it has for itself, if any.
    """
    return {
        "kind": "train",
        "command": list(command),
        "overrides": [],
        "checkpoint": None,
        "project": str(project),
        **computing,
        "description": description,
        "force": False,
        "initialize": initialize,
        "terminal": terminal,
    }


def session_plan(body: Mapping[str, Any], settings: Settings) -> Plan:
    """What is started for a training.

    Args:
        body: The session's request, with its part about ranks.
        settings: Those in effect.
    """
    return Plan(
        request=dict(body),
        argv=list(_WORKER),
        env=callers_environment(),
        own_env=own_environment(cpu=body.get("device") == "cpu"),
        limits=supervisor_limits(settings.limits)._asdict(),
        ranks=rank_layout.rank_environments(body, settings),
        restart=int(body.get("restart", 0)),
    )


def _join_note(num_nodes: int, package: PackageFolder) -> str:
    others = "the other machine" if num_nodes == 2 else f"each of the other {num_nodes - 1} machines"
    return f"on {others} type: roost join {quote(str(package.path))}"


def output_size(path: Path) -> int:
    """Of an output, from where on a new session prints into it."""
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
    """Starts a worker that adds no session to its package, under a supervisor; gives the process to wait for.

    Args:
        running: What it is, and where it writes.
        task: Tells the worker what to do, after the package.
        token: As in what was asked.
        lock_fd: Holds the package's lock, or None for what takes none.
        cpu: Whether it must not see a GPU.
        cards: The GPUs that it sees, by what CUDA_VISIBLE_DEVICES calls them; None: those of the caller.
        leases: Those of its GPUs; as with the lock.
        deadline: When it must have ended, in unix seconds; None: whenever it does.
        argv: What is run instead of the worker itself, to start it; it gets the worker's arguments.
        added: More of the environment.
        spec: More of `SessionSpec`.

    Raises:
        RoostError: The supervisor did not start.
    """
    package = str(running.package)
    given = SessionSpec(
        argv=[*(argv or _WORKER), package, task],
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


def lock_package(package: PackageFolder) -> int:
    """The package's lock, see `PackageFolder.lock`; first ends what a killed session has left behind.

    Raises:
        Refused: Somebody writes to this package.
    """
    end_abandoned(package)
    return package.lock()


def supervisor_limits(settings: LimitSettings) -> SessionLimits:
    """The section ``supervisor_limits`` as the supervisor wants it: seconds and bytes."""
    return SessionLimits(
        wall_seconds=_seconds(settings.wall_time, "limits.wall_time"),
        grace_seconds=parse_duration(settings.grace, setting="limits.grace"),
        core_bytes=settings.core_mb * 2**20,
        output_bytes=settings.output_mb * 2**20,
        stall_seconds=_seconds(settings.stall_timeout, "limits.stall_timeout"),
        end_stalled=settings.on_stall == "end",
    )


def limits_of_attended(settings: LimitSettings) -> SessionLimits:
    """Likewise, of what its caller waits for, and ends: neither the wall time of a training nor its stalls
    do."""
    return supervisor_limits(settings)._replace(wall_seconds=None, end_stalled=False)


def _seconds(duration: str | None, setting: str) -> float | None:
    return None if duration is None else parse_duration(duration, setting=setting)


def worker_environment(
    *, cpu: bool, cards: Sequence[str] | None = None, deadline: float | None = None
) -> dict[str, str]:
    """The worker's environment: the caller's, with its own. Without a deadline it has the caller's."""
    by = f"{deadline:.3f}" if deadline is not None else os.environ.get(DEADLINE_VARIABLE)
    return {
        **callers_environment(),
        **own_environment(cpu=cpu, cards=cards),
        **({DEADLINE_VARIABLE: by} if by else {}),
    }


def own_environment(*, cpu: bool, cards: Sequence[str] | None = None) -> dict[str, str]:
    """What makes a run repeatable, and which GPUs it sees.

    One hash seed for all: the order of a set must be the same again, and a template for warm starts, which
    has begun with one, can serve runs of every seed.

    No bytecode is written, so none lands in the package. PYTHONPYCACHEPREFIX would send it elsewhere, but
    would have torch compiled anew too: 1.3 s more, and at every start where bytecode is switched off.
    """
    seen = [] if cpu or inventory.excludes_real_cards() else cards
    return {
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({visible_cards.VARIABLE: ",".join(seen)} if seen is not None else {}),
    }
