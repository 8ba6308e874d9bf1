"""`roost show`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from roost.cli import terminal


@click.command("show")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def command(package: Path, as_json: bool) -> int:
    """Shows one package: its sessions, newest metrics, checkpoints, settings, and what was left out.

    \b
    roost show runs/NAME
    roost show runs/NAME --json | jq .metrics
    """
    from roost.operations.show import show

    shown = show(package)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))
    else:
        from roost.cli.shown import lines

        for line in lines(shown):
            click.echo(terminal.line(line), color=terminal.colours(sys.stdout))
    return 0
