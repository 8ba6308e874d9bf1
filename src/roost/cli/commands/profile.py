"""`roost profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli import surface
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.reading.profile import RunProfile


@click.command("profile")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--session", type=int, metavar="N", help="The session to read; by default the newest profile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(package: Path, session: int | None, as_json: bool) -> int:
    """Shows what holds a run back, which setting mends it, and how much faster it should be then.

    It reads what `roost run --profile`, or the section profile of the config, has measured. Without that it
    reads the times in the rows of the run, which say less. Nothing is run.

    \b
    roost run config.yaml --profile
    roost profile runs/NAME
    roost profile runs/NAME --json | jq .bottlenecks
    """
    from roost.operations.reading.profile import profile

    found = profile(package, session=session)
    if as_json:
        terminal.print_json(found)
        return 0
    _print(found)
    return 0


def _print(found: RunProfile) -> None:
    from roost.base.text.durations import format_duration
    from roost.package.results.profiles.bottlenecks import format_bottleneck

    seconds = format_duration(found.seconds)
    if found.steps is None:
        click.echo(f"{found.package}: all rows, {seconds}")
    else:
        first, last = found.steps
        click.echo(f"{found.package}, session {found.session}: steps {first} to {last}, {seconds}")
    for one in found.bottlenecks:
        for line in format_bottleneck(one):
            click.echo(terminal.escape_line(line))
    whole = sum(found.milliseconds.values())
    parts = [f"{part} {ms / whole:.0%}" for part, ms in found.milliseconds.items()]
    click.echo(f"a step: {whole:.3g} ms  {'  '.join(parts)}")
    for note in found.notes:
        click.echo(terminal.escape_line(f"note: {note}"))
    if found.picture is not None:
        surface.print_picture(Path(found.picture))
