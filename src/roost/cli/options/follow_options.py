"""`--detach` and `--pdb` of the commands that start a session, and what follows from them."""

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
    """Adds both options to a command, which takes them out again by `take_terminal`."""
    pdb = click.option(
        "--pdb", is_flag=True, help="Give this terminal to the run: breakpoint() works, an error opens pdb."
    )
    return click.option(
        "--detach", is_flag=True, help="Start it and return; see it again with roost attach."
    )(pdb(command))


def take_terminal(options: dict[str, Any]) -> tuple[bool, str]:
    """Takes both out of a command's options: whether to detach, and the terminal that the run gets, if any.

    Raises:
        UsageError: They contradict each other, or there is no terminal to give.
    """
    detach, pdb = options.pop("detach"), options.pop("pdb")
    if not pdb:
        return detach, ""
    if detach:
        raise UsageError("--pdb needs somebody at the terminal", fix="leave out --detach")
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError("--pdb needs a terminal, and stdin or stdout is none", fix="type it at a prompt")
    return detach, os.ttyname(sys.stdin.fileno())


def follow_or_detach(started: StartedSession, *, detach: bool) -> int:
    """Leaves a session alone or shows it to its end; gives the exit code of the program."""
    from roost.cli import live_run

    return live_run.report_detached(started) if detach else live_run.show_started(started)
