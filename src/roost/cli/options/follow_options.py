"""`--detach` and `--pdb` of the commands that start a session, and following that session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.base.errors import UsageError

if TYPE_CHECKING:
    from roost.operations.sessions.session_request import StartedSession

F = TypeVar("F", bound=Callable[..., Any])


def terminal_options(command: F) -> F:
    """Adds ``--detach`` and ``--pdb`` to a command, which reads them by `take_terminal`."""
    pdb = click.option(
        "--pdb",
        is_flag=True,
        help="Give this terminal to the run: breakpoint() works, and an error opens pdb.",
    )
    return click.option(
        "--detach", is_flag=True, help="Start the run in the background; watch it with roost attach."
    )(pdb(command))


def take_terminal(options: dict[str, Any]) -> tuple[bool, str]:
    """Removes both from a command's options; returns whether to detach, and the terminal that the run gets or
    "".

    Raises:
        UsageError: The two contradict each other, or this is no terminal.
    """
    detach, pdb = options.pop("detach"), options.pop("pdb")
    if not pdb:
        return detach, ""
    if detach:
        raise UsageError("--pdb is interactive, and --detach is not", fix="leave out --detach")
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError(
            "--pdb needs a terminal as stdin and stdout", fix="run it without pipes in a terminal"
        )
    return detach, os.ttyname(sys.stdin.fileno())


def follow_or_detach(started: StartedSession, *, detach: bool) -> int:
    """Detaches from a session, or shows it until it ends; returns the exit code of the program."""
    from roost.cli import live_run

    return live_run.report_detached(started) if detach else live_run.show_started(started)
