"""`roost release`."""

from __future__ import annotations

import click

from roost.cli import task_changes


@click.command("release")
@click.argument("named", nargs=-1, required=True, metavar="TASK...")
def command(named: tuple[str, ...]) -> int:
    """Lets held tasks start.

    \b
    roost release 01m7ybz8bp
    """
    return task_changes.change_tasks(named, held=False)
