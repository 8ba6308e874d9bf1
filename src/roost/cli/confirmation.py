"""The question before a command removes something, or starts many runs."""

from __future__ import annotations

import sys

import click

from roost.base.errors import UsageError
from roost.display import terminal


def confirm(question: str, *, yes: bool, refused: str = "nothing was removed") -> bool:
    """Asks on the terminal, and returns the answer; True without a question if ``yes`` was given.

    Args:
        question: The question, without yes and no.
        yes: Whether the user has answered it on the command line.
        refused: What to say if the answer is no.

    Raises:
        UsageError: There is no terminal to ask on.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"there is no terminal to ask on, so {refused}", fix="add --yes")
    if click.confirm(terminal.escape_text(question), err=True):
        return True
    terminal.print_status(refused)
    return False
