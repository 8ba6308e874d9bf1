"""The session plan: the program and environment of a session, before it has a number, cards or a queue
entry."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from roost.base.system.worker_protocol import DEADLINE_VARIABLE, RENDEZVOUS_VARIABLE

_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", RENDEZVOUS_VARIABLE)
"""Variables of a caller that is itself one of several ranks."""


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one session, or of each attempt of a task."""

    request: dict[str, Any]
    """The content of ``sessions/<n>.request.json``, without the values that are known only at the start."""
    argv: list[str]
    """The program and its arguments; for a worker the package and the session's number are appended."""
    is_command: bool = False
    """Whether the program is a command of the user, whose exit code is the outcome; else it is a worker."""
    cwd: str = ""
    """The working directory of a command; empty: the package, as for a worker."""
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
    process is no rank of the caller's session, and has a deadline of its own."""
    left_out = (*_OF_A_RANK, DEADLINE_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in left_out}
