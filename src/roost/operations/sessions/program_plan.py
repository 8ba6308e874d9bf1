"""The request and the plan of a session of a program. This module does not import what trainings need."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from roost.lab.sessions.session_plan import SessionPlan, callers_environment
from roost.package.kinds import TaskKind
from roost.package.program_request import ProgramRequest
from roost.package.session_schema import SessionRequest
from roost.supervisor.limits import SessionLimits

_PROGRAM_WORKER = (sys.executable, "-P", "-m", "roost.worker.programs.program_task")
"""The program that starts programs of the user."""


def program_session(
    program: ProgramRequest, layout: Mapping[str, Any], description: str | None = None
) -> SessionRequest:
    """Returns the request of a session of a program.

    Args:
        program: The program.
        layout: The part of the request about devices; empty for a task, whose cards the lab chooses.
        description: A few words of the user.
    """
    found = SessionRequest(
        kind=TaskKind.COMMAND,
        command=program.command,
        project=program.project,
        **layout,
        description=description,
    )
    if program.remote:
        found.remote = program.remote
    return found


def program_plan(
    request: Mapping[str, Any],
    *,
    limits: SessionLimits,
    own_env: Mapping[str, str] | None = None,
    restart: int = 0,
) -> SessionPlan:
    """Returns the session plan of a program, with the caller's environment.

    Args:
        request: The content of the session's request file.
        limits: Its limits.
        own_env: Variables in addition.
        restart: How many times the next session may start automatically.
    """
    return SessionPlan(
        request=dict(request),
        argv=list(_PROGRAM_WORKER),
        is_command=True,
        is_observed=True,
        env=callers_environment(),
        own_env=dict(own_env or {}),
        limits=limits._asdict(),
        restart=restart,
    )
