"""The beginning of a session, for whoever begins one: a command at a terminal, or the lab."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roost.base.system.worker_protocol import DEADLINE_VARIABLE, LEASE_VARIABLE, REPORT_VARIABLE
from roost.devices.lease import Leases
from roost.lab.sessions.session_plan import Plan
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from roost.supervisor.guard_start import SupervisedSession
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec

CARDS_VARIABLE = "CUDA_VISIBLE_DEVICES"


class Begun(NamedTuple):
    """A session that runs by itself."""

    number: int
    supervised: SupervisedSession


def begin(
    package: PackageFolder,
    lock_fd: int,
    plan: Plan,
    *,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    deadline: float | None = None,
    token: str | None = None,
) -> Begun:
    """Adds a session to a package and starts it.

    Args:
        package: The package.
        lock_fd: Holds its lock. The supervisor gets a copy; the caller then closes its own, which would keep
            the package locked after the run.
        plan: What is started.
        cards: That it sees, as CUDA_VISIBLE_DEVICES calls them; None: those that the plan's environment
            leaves it.
        leases: Those of its cards; as with the lock.
        deadline: When it must have ended, in unix seconds.
        token: As in `SessionSpec`, where the plan holds it, too; None: a new one.

    Raises:
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
    """
    spec = add(package, plan, cards=cards, leases=leases, deadline=deadline, token=token)
    # What runs inside another run is a part of that; and who has a debugger's terminal sits there.
    spec = spec._replace(is_noticed=REPORT_VARIABLE not in plan.env and not spec.terminal)
    return Begun(spec.session, guard_start.start_session(spec, lock_fd=lock_fd))


def add(
    package: PackageFolder,
    plan: Plan,
    *,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    deadline: float | None = None,
    added: Mapping[str, Any] | None = None,
    token: str | None = None,
) -> SessionSpec:
    """Adds a session to a package, whose lock the caller holds; gives what its guard is to be told. It is the
    supervisor who waits for the disk: the request is durable when the session is recorded.

    Args:
        package: As for `begin`, like the rest.
        plan: Likewise.
        cards: Likewise.
        leases: Likewise.
        deadline: Likewise.
        added: More of its request.
        token: Likewise.

    Raises:
        OSError: The request cannot be written.
    """
    token = token or secrets.token_hex(16)
    body = {**plan.request, **(added or {}), "token": token}
    number = package.new_session(body, is_durable=False)
    return _spec(package, number, plan, token, cards, leases, deadline)


def _spec(
    package: PackageFolder,
    number: int,
    plan: Plan,
    token: str,
    cards: Sequence[str] | None,
    leases: Leases | None,
    deadline: float | None,
) -> SessionSpec:
    path = str(package.path)
    env = {name: value for name, value in {**plan.env, **plan.own_env}.items() if name != LEASE_VARIABLE}
    if leases is not None:
        env |= leases.environment()
    if cards is not None:
        env[CARDS_VARIABLE] = ",".join(cards)
    if deadline is not None:
        env[DEADLINE_VARIABLE] = f"{deadline:.3f}"
    folder = package.path / "sessions"
    return SessionSpec(
        argv=[*plan.argv, *([] if plan.is_command else [path, str(number)])],
        cwd=plan.cwd or path,
        env=env,
        package=path,
        session=number,
        output=str(package.output),
        session_file=str(folder / f"{number}.json"),
        request_file=str(folder / f"{number}.request.json"),
        token=token,
        limits=SessionLimits(**plan.limits),
        progress="" if plan.is_command else str(package.progress),
        stacks=str(folder / f"{number}.stacks.txt"),
        terminal=str(plan.request.get("terminal") or ""),
        ranks=plan.ranks,
        restart=plan.restart,
        is_command=plan.is_command,
        is_launcher=plan.is_launcher,
        lease_fds=leases.fds if leases is not None else (),
    )
