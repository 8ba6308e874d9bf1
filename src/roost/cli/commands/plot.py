"""`roost plot`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.cli import terminal


@click.command("plot")
@click.argument("packages", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The picture: .png, .svg, .pdf."
)
def command(packages: tuple[Path, ...], output: Path) -> int:
    """Draws every metric: train, valid and test of one name in one panel; several packages overlaid.

    Checkpoints are ticks on the step axis, the best a diamond; a dashed line is where a session went on.

    \b
    roost plot runs/NAME -o curves.png
    roost plot runs/A runs/B -o both.png
    """
    from roost.operations.plot import plot

    drawn = plot(packages, output=output)
    terminal.say(terminal.harmless(", ".join(drawn.panels)))
    if drawn.left_out:
        terminal.say(terminal.harmless(f"left out, nothing is recorded yet: {', '.join(drawn.left_out)}"))
    click.echo(output)
    return 0
