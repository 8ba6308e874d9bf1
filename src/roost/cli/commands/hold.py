"""`roost hold`."""

from __future__ import annotations

import click

from roost.cli import task_changes


@click.command("hold")
@click.argument("named", nargs=-1, required=True, metavar="TASK...")
def command(named: tuple[str, ...]) -> int:
    """Holds tasks back: they do not start before `roost release`.

    A task that runs goes on; it is held back if it is to start again.

    \b
    roost hold 01m7ybz8bp
    """
    return task_changes.change_tasks(named, held=True)
