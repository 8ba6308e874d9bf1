"""`roost hold`."""

from __future__ import annotations

import click

from roost.cli import task_changes


@click.command("hold")
@click.argument("named", nargs=-1, required=True, metavar="TASK...")
def command(named: tuple[str, ...]) -> int:
    """Keeps tasks from starting until `roost release`.

    A running task continues; it is held if it has to start again.

    \b
    roost hold 01m7ybz8bp
    """
    return task_changes.change_tasks(named, held=True)
