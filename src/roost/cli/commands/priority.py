"""`roost priority`."""

from __future__ import annotations

import re

import click

from roost.base.errors import UsageError
from roost.cli import task_changes


# A number below 0 is no option.
@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="TASK... N")
def command(arguments: tuple[str, ...]) -> int:
    """Gives tasks, or all of a sweep, another priority: higher comes first, 0 is usual.

    \b
    roost priority 01m7ybz8bp 10
    roost priority 01m7ybz8bp 01m7ybz8c4 -5
    """
    from roost.operations.queue.resources import HIGHEST_PRIORITY as MOST

    *named, number = arguments or ("",)
    typed = " ".join(arguments)
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", number) or abs(int(number)) > MOST:
        what = f"the last one is the new priority, a whole number from -{MOST} to {MOST}"
        raise UsageError(what, received=typed, fix="roost priority TASK... 10")
    if not named:
        raise UsageError("no task is named", received=typed, fix=f"roost priority TASK... {number}")
    return task_changes.change_tasks(named, priority=int(number))
