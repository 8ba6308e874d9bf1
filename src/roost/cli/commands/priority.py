"""`roost priority`."""

from __future__ import annotations

import re

import click

from roost.base.errors import UsageError
from roost.cli import task_changes


# So that a negative number is no option.
@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="TASK... N")
def command(arguments: tuple[str, ...]) -> int:
    """Changes the priority of tasks, or of all tasks of a sweep: higher starts first; the default is 0.

    \b
    roost priority 01m7ybz8bp 10
    roost priority 01m7ybz8bp 01m7ybz8c4 -5
    """
    from roost.devices.resource_request import HIGHEST_PRIORITY as MOST

    *named, number = arguments or ("",)
    typed = " ".join(arguments)
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", number) or abs(int(number)) > MOST:
        what = f"the last argument is the new priority, a whole number from -{MOST} to {MOST}"
        raise UsageError(what, received=typed, fix="type `roost priority TASK... 10`")
    if not named:
        raise UsageError("no task is named", received=typed, fix=f"type `roost priority TASK... {number}`")
    return task_changes.change_tasks(named, priority=int(number))
