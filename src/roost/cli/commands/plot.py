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
@click.option(
    "-m", "--metric", "names", multiple=True, metavar="NAME", help="This one only: loss, 'valid/*', 'perf/*'."
)
def command(packages: tuple[Path, ...], output: Path, names: tuple[str, ...]) -> int:
    """Draws every metric: train, valid and test of one name in one panel; several packages overlaid.

    Checkpoints are ticks on the step axis, the best a diamond; a dashed line is where a session went on.
    Times and memory, which each row has too, are drawn when they are named: perf/...

    \b
    roost plot runs/NAME -o curves.png
    roost plot runs/A runs/B -m loss -o both.png
    roost plot runs/NAME -m 'perf/*' -o times.png
    """
    from roost.operations.plot import plot

    drawn = plot(packages, output=output, names=names)
    terminal.say(terminal.harmless(", ".join(drawn.panels)))
    if drawn.left_out:
        why = "nothing of that name is recorded" if names else "nothing is recorded yet"
        terminal.say(terminal.harmless(f"left out, {why}: {', '.join(drawn.left_out)}"))
    click.echo(output)
    return 0
