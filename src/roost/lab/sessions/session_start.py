"""Starts sessions, for commands at a terminal and for the lab."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roost.base.system.worker_protocol import DEADLINE_VARIABLE, LEASE_VARIABLE, REPORT_VARIABLE
from roost.devices.lease import Leases
from roost.lab.sessions.session_plan import SessionPlan
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from roost.supervisor.guard_start import SupervisedSession
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec

CARDS_VARIABLE = "CUDA_VISIBLE_DEVICES"


class SessionStart(NamedTuple):
    """A session that was started and runs without the caller."""

    number: int
    supervised: SupervisedSession


def start_session(
    package: PackageFolder,
    lock_fd: int,
    plan: SessionPlan,
    *,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    core_ids: Sequence[int] = (),
    deadline: float | None = None,
    token: str | None = None,
) -> SessionStart:
    """Adds a session to a package and starts its supervisor.

    Args:
        package: The package.
        lock_fd: The descriptor that holds the package's lock. The supervisor gets a copy; the caller then
            closes its own, which would keep the package locked after the run.
        plan: The plan of the session.
        cards: The value of CUDA_VISIBLE_DEVICES, as a list; None: that of the plan's environment.
        leases: The leases of these cards, whose descriptors the supervisor gets like that of the lock.
        core_ids: As in `SessionSpec`.
        deadline: When the session must have ended, in unix seconds.
        token: As in `SessionSpec`, for a plan that already uses the token; None: a new one.

    Raises:
        OSError: The request file cannot be written.
        RoostError: The supervisor did not start.
    """
    spec = add_session(
        package, plan, cards=cards, leases=leases, core_ids=core_ids, deadline=deadline, token=token
    )
    # No notice for a run inside another run, which is part of it, or for one with a debugger at a terminal.
    spec = spec._replace(is_noticed=REPORT_VARIABLE not in plan.env and not spec.terminal)
    return SessionStart(spec.session, guard_start.start_session(spec, lock_fd=lock_fd))


def add_session(
    package: PackageFolder,
    plan: SessionPlan,
    *,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    core_ids: Sequence[int] = (),
    deadline: float | None = None,
    added: Mapping[str, Any] | None = None,
    token: str | None = None,
) -> SessionSpec:
    """Adds a session to a package, whose lock the caller holds; returns the spec for its guard.

    The supervisor waits for the disk: the request file is durable when the session record is written. The
    arguments are those of `start_session`, and:

    Args:
        added: Further keys of the request file.

    Raises:
        OSError: The request file cannot be written.
    """
    token = token or secrets.token_hex(16)
    bound = {"core_ids": list(core_ids)} if core_ids else {}
    body = {**plan.request, **(added or {}), **bound, "token": token}
    number = package.new_session(body, is_durable=False)
    spec = _spec(package, number, plan, token, cards, leases, deadline)
    return spec._replace(core_ids=tuple(core_ids))


def _spec(
    package: PackageFolder,
    number: int,
    plan: SessionPlan,
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
