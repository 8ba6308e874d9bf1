"""Where a command runs: at a terminal, or in the cell of a notebook, which installs its own surface."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from roost.cli.live_run import Screen
    from roost.operations.sessions.running_session import RunningSession


@dataclass(frozen=True)
class Surface:
    """The words and screens of a command that depend on where it runs."""

    program: str = "roost"
    """How a person types this program."""
    interrupt: str = "Ctrl-C"
    closing: str = "this terminal closes"
    """The end of this program that leaves a run alone."""
    attached: str = "Ctrl-C asks whether to detach or to stop it"
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    """The signals that stop what is followed."""
    new_screen: Callable[[RunningSession], Screen] | None = None
    """Makes the screen of a run that is followed; None: a progress bar or plain lines."""
    show_picture: Callable[[Path], None] | None = None
    """Shows a picture; None: only its path is printed."""


_current: ContextVar[Surface] = ContextVar("surface", default=Surface())  # noqa: B039  - immutable


def current() -> Surface:
    """Returns the surface of the command that is running."""
    return _current.get()


@contextmanager
def installed(surface: Surface) -> Iterator[None]:
    """Installs a surface for the commands that are run inside."""
    token = _current.set(surface)
    try:
        yield
    finally:
        _current.reset(token)


def print_picture(path: Path) -> None:
    """Prints the path of a picture; where pictures can be shown, shows it too."""
    click.echo(path)
    if (show := current().show_picture) is not None:
        show(path)
