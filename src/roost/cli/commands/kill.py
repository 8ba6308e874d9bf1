"""`roost kill`."""

from __future__ import annotations

import click


@click.command("kill")
@click.argument("named", nargs=-1, required=True, metavar="TASK|PACKAGE...")
def command(named: tuple[str, ...]) -> int:
    """Ends runs or tasks at once, as `roost stop --now` does, and waits until they have ended.

    Steps since the newest checkpoint are lost; `roost continue` trains them again.

    \b
    roost kill 01m7ybz8bp
    """
    from roost.cli.commands.stop import stop_and_report

    return stop_and_report(named, now=True)
