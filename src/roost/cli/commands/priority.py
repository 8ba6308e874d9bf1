"""`roost priority`."""

from __future__ import annotations

import click

from roost.cli import changed


# A number below 0 is no option.
@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("task")
@click.argument("priority", type=click.IntRange(-1_000_000, 1_000_000), metavar="N")
def command(task: str, priority: int) -> int:
    """Gives a task, or all of a sweep, another priority: higher comes first, 0 is usual.

    \b
    roost priority 01m7ybz8bp 10
    roost priority 01m7ybz8bp -5
    """
    from roost.operations.order import change

    return changed.show(change([task], priority=priority))
