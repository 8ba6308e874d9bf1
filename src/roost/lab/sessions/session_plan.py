"""What is started for a session: known before it has a number, its cards, or a place in the queue."""

from __future__ import annotations

from typing import Any

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or each attempt of a task."""

    request: dict[str, Any]
    """What is asked of the session (``sessions/<n>.request.json``), but for what is known at its start."""
    argv: list[str]
    """The program; a worker is told the package and the session's number, too."""
    is_command: bool = False
    """Whether it is a command of the user, which ends as its exit code says, and no worker."""
    cwd: str = ""
    """Where a command runs; empty: in the package, as a worker does."""
    env: dict[str, str]
    """The environment of whoever asked. It may hold secrets, so it never stands in a package."""
    own_env: dict[str, str] = {}
    """What it is set above that."""
    limits: dict[str, Any] = {}
    """As `Limits` has them."""
    ranks: tuple[dict[str, str], ...] = ()
    """As in `Spec`."""
    restart: int = 0
    """Likewise."""
    is_launcher: bool = False
    """Likewise."""
