"""`roost attach`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("attach")
@click.argument("package", type=click.Path(path_type=Path), metavar="PACKAGE|TASK")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Earlier lines to show first.",
)
def command(package: Path, lines: int) -> int:
    """Shows the output and progress of a running session until it ends.

    The session may have been started with --detach, by the lab, or on a terminal that is closed. Ctrl-C asks
    whether to detach or to stop the run. The exit code is that of the run, 0 after detaching.

    \b
    roost attach runs/NAME
    roost attach runs/NAME -n 100
    """
    from roost.cli import live_run
    from roost.operations.lifecycle.attach import attach

    return live_run.show_attached(attach(package, lines=lines))
