"""The session plan: the program and environment of a session, before it has a number, cards or a queue
entry; with these it becomes a session spec."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from roost.base.system.worker_protocol import (
    DEADLINE_VARIABLE,
    LEASE_VARIABLE,
    RENDEZVOUS_VARIABLE,
    REPORT_VARIABLE,
)
from roost.config.sections.remote import parse_wait
from roost.lab.sessions import upload_reserve
from roost.package import sessions
from roost.package.owner import owner_file
from roost.package.results import system_metrics
from roost.package.seals import session_seal
from roost.package.session_folder import SessionFolder
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec

if TYPE_CHECKING:
    from roost.devices.lease import Leases

_KERNEL_VARIABLE = "JPY_PARENT_PID"
"""Set in the kernel of a notebook."""
_OF_A_KERNEL = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "PAGER", "PYDEVD_USE_FRAME_EVAL")
"""What a kernel sets for the programs of its cells: colours also where no terminal is."""
_DRAWING_VARIABLE, _DRAWING_INTO_CELLS = "MPLBACKEND", "module://matplotlib_inline"
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", RENDEZVOUS_VARIABLE)
"""Variables of a caller that is itself one of several ranks."""


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one session, or of each attempt of a task."""

    request: dict[str, Any]
    """The content of ``sessions/<n>.request.json``, without the values that are known only at the start."""
    argv: list[str]
    """The program and its arguments; for a worker the package, the session folder if that is another one, and
    the session's number are appended."""
    is_command: bool = False
    """Whether the program is a command of the user, whose exit code is the outcome; else it is a worker."""
    is_observed: bool = False
    """Whether that command is started by `roost.worker.programs`, which gets the arguments of a worker; not
    that of a task which an older roost has queued."""
    cwd: str = ""
    """The working directory of a command that is not observed; empty: the package, as for a worker."""
    env: dict[str, str]
    """The environment of the process that made the request. It may hold secrets, so no package holds it."""
    own_env: dict[str, str] = {}
    """Variables that are set in addition, and override it."""
    limits: dict[str, Any] = {}
    """The fields of `SessionLimits`."""
    ranks: tuple[dict[str, str], ...] = ()
    """As in `SessionSpec`."""
    restart: int = 0
    """As in `SessionSpec`."""
    is_launcher: bool = False
    """As in `SessionSpec`."""


def callers_environment() -> dict[str, str]:
    """Returns the environment of the caller without the variables of a rank and without a deadline: the new
    process is no rank of the caller's session, and has a deadline of its own. Nor does it write into the cell
    of a notebook, whose kernel sets variables for that."""
    left_out = {*_OF_A_RANK, DEADLINE_VARIABLE}
    if _KERNEL_VARIABLE in os.environ:
        left_out.update(_OF_A_KERNEL)
        if os.environ.get(_DRAWING_VARIABLE, "").startswith(_DRAWING_INTO_CELLS):
            left_out.add(_DRAWING_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in left_out}


def add_session(
    folder: SessionFolder,
    plan: SessionPlan,
    *,
    cards: Sequence[str] | None = None,
    leases: Leases | None = None,
    core_ids: Sequence[int] = (),
    deadline: float | None = None,
    added: Mapping[str, Any] | None = None,
    token: str | None = None,
    is_queued: bool,
) -> SessionSpec:
    """Adds a session to a session folder, whose lock the caller holds; returns the spec for its guard.

    The supervisor waits for the disk: the request file is durable when the session record is written.

    Args:
        folder: The package, or the session folder of a task that reads one.
        plan: The plan of the session.
        cards: The value of CUDA_VISIBLE_DEVICES, as a list; None: that of the plan's environment.
        leases: The leases of these cards, whose descriptors the supervisor gets like that of the lock.
        core_ids: As in `SessionSpec`.
        deadline: When the session must have ended, in unix seconds.
        added: Further keys of the request file.
        token: As in `SessionSpec`, for a plan that already uses the token; None: a new one.
        is_queued: Whether it is an attempt of a task.

    Raises:
        Refused: A session of another machine was begun at the same moment.
        OSError: The request file cannot be written.
    """
    from roost.devices import lease_files  # takes 2 ms, which a submission need not spend

    token = token or secrets.token_hex(16)
    bound = {"core_ids": list(core_ids)} if core_ids else {}
    request = {**plan.request, **(added or {}), **bound, "token": token}
    if folder.is_package:
        owner_file.claim(folder.path, session=sessions.next_number(folder.session_files), token=token)
    number = folder.new_session(request, is_durable=False)
    package, files = str(folder.package_path), folder.session_files
    own_folder = () if folder.is_package else (str(folder.path),)
    terminal = str(plan.request.get("terminal") or "")
    is_bare = plan.is_command and not plan.is_observed
    limits, wait_seconds, machine_end = SessionLimits(**plan.limits), None, deadline
    if (remote := plan.request.get("remote")) is not None:
        wait_seconds = parse_wait(str(remote["wait"]))
        limits, deadline = upload_reserve.with_reserve(limits, deadline, wait_seconds)
    return SessionSpec(
        argv=[*plan.argv, *([] if is_bare else [package, *own_folder, str(number)])],
        cwd=plan.cwd or package,
        env=_environment(plan, cards, leases, deadline),
        package=package,
        session=number,
        output=str(folder.output),
        session_file=str(files / f"{number}.json"),
        request_file=str(files / f"{number}.request.json"),
        token=token,
        limits=limits,
        remote_wait_seconds=wait_seconds,
        remote_deadline=machine_end if wait_seconds is not None else None,
        progress="" if plan.is_command else str(folder.progress),
        stacks=str(files / f"{number}.stacks.txt"),
        seal=str(session_seal.seal_path(folder.path, number)),
        owner=str(owner_file.path_of(folder.path)) if folder.is_package else "",
        system=str(folder.path / system_metrics.FOLDER / f"{number}.jsonl"),
        samples=lease_files.make_samples_folder(),
        card_ids=leases.card_ids if leases is not None else (),
        terminal=terminal,
        ranks=plan.ranks,
        restart=plan.restart,
        is_command=plan.is_command,
        is_launcher=plan.is_launcher,
        # None for a run inside another run, which is part of it, or for one with a debugger at a terminal.
        is_noticed=not (is_queued or terminal or REPORT_VARIABLE in plan.env),
        core_ids=tuple(core_ids),
        lease_fds=leases.fds if leases is not None else (),
    )


def _environment(
    plan: SessionPlan, cards: Sequence[str] | None, leases: Leases | None, deadline: float | None
) -> dict[str, str]:
    env = {name: value for name, value in {**plan.env, **plan.own_env}.items() if name != LEASE_VARIABLE}
    if leases is not None:
        env |= leases.environment()
    if cards is not None:
        from roost.devices import visible_cards  # takes 2 ms, which a submission need not spend

        env[visible_cards.VARIABLE] = ",".join(cards)
    if deadline is not None:
        env[DEADLINE_VARIABLE] = f"{deadline:.3f}"
    return env
