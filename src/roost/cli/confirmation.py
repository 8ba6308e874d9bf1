"""The question before a command removes something."""

from __future__ import annotations

import sys

import click

from roost.base.errors import UsageError
from roost.cli import terminal


def confirm(question: str, *, yes: bool) -> bool:
    """Asks on the terminal, and returns the answer; True without a question if ``yes`` was given.

    Raises:
        UsageError: There is no terminal to ask on.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on, so nothing was removed", fix="add --yes")
    if click.confirm(terminal.escape_text(question), err=True):
        return True
    terminal.print_status("nothing was removed")
    return False
