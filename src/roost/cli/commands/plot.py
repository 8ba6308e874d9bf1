"""`roost plot`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.base.errors import UsageError
from roost.cli.surface import print_picture
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.plots.plot_view import PlotView


@click.command("plot")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The picture: .png, .svg, .pdf; default: the terminal, or of one package its exports/curves.png.",
)
@click.option(
    "-m",
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this metric: loss, 'valid/*', 'perf/*'.",
)
@click.option(
    "--x",
    metavar="AXIS",
    help="step (the default), epoch, samples, time (of day) or elapsed (in sessions, without pauses).",
)
@click.option(
    "--log", metavar="AXES", help="Logarithmic axes: x, y, xy or none. Default: y of a loss that falls far."
)
@click.option(
    "--smooth",
    type=float,
    default=0.0,
    metavar="WEIGHT",
    help="Smooth by an exponential moving average, 0 to 1: 0.9. The recorded values stay visible.",
)
@click.option(
    "--group-by", metavar="KEY", help="Means over seeds (seed), sweeps (sweep) or equal values of KEY."
)
@click.option(
    "--band", default="std", metavar="KIND", show_default=True, help="Around means: std or min-max."
)
@click.option("--system", is_flag=True, help="Draw cards, processes and host over time; -m 'gpu/*'.")
@click.option("--scatter", metavar="KEY,...", help="Points: these settings against the metric, by run.")
@click.option("--parallel", metavar="KEY,...", help="Parallel axes: these settings and the metric, by run.")
@click.option(
    "--value", metavar="WHICH", help="For these two, of the metric: last, min or max; default: last."
)
@click.option("--terminal", "as_text", is_flag=True, help="Draw as text, also through a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print the points as they are drawn.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is no picture of this command.")
@click.option("--follow", is_flag=True, help="Redraw the picture until all runs have ended.")
@click.option("--every", metavar="TIME", help="With --follow: the time between two pictures; default: 5s.")
def command(
    words: tuple[str, ...],
    output: Path | None,
    names: tuple[str, ...],
    x: str | None,
    log: str | None,
    smooth: float,
    group_by: str | None,
    band: str,
    system: bool,
    scatter: str | None,
    parallel: str | None,
    value: str | None,
    as_text: bool,
    as_json: bool,
    overwrite: bool,
    follow: bool,
    every: str | None,
) -> int:
    """Draws the metrics of packages: one panel for train, valid and test of a metric; packages are overlaid.

    PACKAGE is a path, a name in ./runs, a task, a sweep, a folder of packages, a pattern in quotes, or a
    query as of `roost ls`.

    Checkpoints are ticks on the step axis, the best one is a diamond; a dashed line is the start of a later
    session. The curve of a fork is pale up to the step where it was forked. Times and memory (perf/...) are
    drawn only if named by -m.

    Several packages are named by the settings in which they differ. Those that differ only in their seed
    share a colour; --group-by seed draws their mean. --scatter and --parallel show how a metric follows from
    settings: a point or line for each run.

    On a terminal, without -o, the plot is drawn as text.

    \b
    roost plot runs/NAME                            # in the terminal; else runs/NAME/exports/curves.png
    roost plot runs/NAME -o curves.png
    roost plot runs/A runs/B -m loss -o both.png
    roost plot SWEEP -o sweep.png --group-by seed
    roost plot SWEEP --scatter lr -m valid/accuracy --value max -o lr.png
    roost plot SWEEP --parallel lr,model.width,seed -m valid/loss -o sweep.svg
    roost plot runs 'lr<1e-3 status:succeeded' -m 'valid/*' -o valid.svg --x epoch --smooth 0.9
    roost plot runs/NAME -m 'perf/*' -o times.png
    roost plot runs/NAME --system -o system.png     # utilization, memory, power
    roost plot runs/NAME --follow                   # redrawn while it trains
    """
    from roost.operations.listing.named_packages import select_packages
    from roost.operations.plots.plot_view import PlotView

    view = PlotView(
        x=x or ("elapsed" if system else "step"), smooth=smooth, log=log, group_by=group_by, band=band
    )
    if scatter is not None or parallel is not None:
        _check_settings_plot(view, scatter, parallel, is_other=follow or system)
        return _plot_settings(
            select_packages(words), output, names, scatter, parallel, value or "last",
            as_text=as_text, as_json=as_json, overwrite=overwrite,
        )  # fmt: skip
    if value is not None:
        raise UsageError(
            "is for --scatter and --parallel", setting="--value", received=value, fix="leave it out"
        )
    packages = select_packages(words)
    if follow:
        if as_text or as_json or system:
            fix = "leave out --terminal, --json and --system"
            raise UsageError("draws pictures of metrics only", setting="--follow", fix=fix)
        return _follow(packages, output, names, view, every or "5s", overwrite=overwrite)
    if every is not None:
        raise UsageError("--every is for --follow", received=every, fix="add --follow, or leave out --every")
    if as_text or as_json or (output is None and sys.stdout.isatty()):
        if output is not None:
            raise UsageError("is for a picture", setting="-o", received=str(output), fix="leave out one")
        return _print(packages, names, view, system=system, as_json=as_json)
    if sys.stderr.isatty():
        terminal.print_status("drawing …")  # importing the drawing library takes seconds
    from roost.operations.plots.plot import plot

    drawn = plot(packages, output=output, names=names, view=view, system=system, overwrite=overwrite)
    terminal.print_status(terminal.escape_text(", ".join(drawn.panels)))
    _report_left_out(drawn.notes, drawn.damaged, drawn.left_out, names)
    print_picture(output or Path(drawn.path))
    return 0


def _check_settings_plot(
    view: PlotView, scatter: str | None, parallel: str | None, *, is_other: bool
) -> None:
    from roost.operations.plots.plot_view import PlotView

    setting = "--parallel" if scatter is None else "--scatter"
    if scatter is not None and parallel is not None:
        raise UsageError("are two plots", setting="--scatter and --parallel", fix="give one of them")
    if view != PlotView() or is_other:
        raise UsageError(
            "draws no curves",
            setting=setting,
            fix="leave out --x, --log, --smooth, --group-by, --band, --system, --follow",
        )


def _plot_settings(
    packages: Sequence[Path],
    output: Path | None,
    names: tuple[str, ...],
    scatter: str | None,
    parallel: str | None,
    value: str,
    *,
    as_text: bool,
    as_json: bool,
    overwrite: bool,
) -> int:
    from roost.operations.plots.setting_points import read_points

    keys = [key for one in (scatter or parallel or "").split(",") if (key := one.strip())]
    if not keys:
        raise UsageError("names no setting", setting="--scatter or --parallel", fix="name some: --scatter lr")
    points = read_points(packages, keys, names, value=value)
    if as_json:
        terminal.print_json(points)
    elif output is not None:
        from roost.operations.plots.plot import plot_settings

        kind = "parallel" if scatter is None else "scatter"
        plot_settings(packages, points, kind=kind, output=output, overwrite=overwrite)
        print_picture(output)
    elif as_text or sys.stdout.isatty():
        if scatter is not None:
            from roost.display.terminal_plots.terminal_plot import print_scatter

            print_scatter(points)
        else:
            from roost.display.terminal_plots.parallel_plot import print_parallel

            print_parallel(points)
    else:
        raise UsageError("needs a picture", setting="--parallel" if scatter is None else "--scatter",
                         fix="add -o settings.png, --terminal or --json")  # fmt: skip
    _report_left_out(points.notes, [], points.left_out, ("metric",))
    return 0


def _follow(
    packages: Sequence[Path],
    output: Path | None,
    names: tuple[str, ...],
    view: PlotView,
    every: str,
    *,
    overwrite: bool,
) -> int:
    from roost.base.interval import parse_duration
    from roost.operations.plots.plot import PlotResult, follow

    number, last = 0, None
    with terminal.RewrittenLine() as line:
        for drawn in follow(
            packages,
            output=output,
            names=names,
            view=view,
            every_seconds=parse_duration(every, setting="--every"),
            overwrite=overwrite,
        ):
            if not isinstance(drawn, PlotResult):
                line.show(f"waiting for {', '.join(drawn)}: nothing is recorded yet")
                continue
            if not number:
                click.echo(output or drawn.path)
            number, last = number + 1, drawn
            pictures = "1 picture" if number == 1 else f"{number} pictures"
            line.show(
                f"{time.strftime('%H:%M:%S')}  step {drawn.step}  {pictures}: {', '.join(drawn.panels)}"
            )
    if last is not None:
        _report_left_out(last.notes, last.damaged, last.left_out, names)
    return 0


def _print(
    packages: Sequence[Path], names: tuple[str, ...], view: PlotView, *, system: bool, as_json: bool
) -> int:
    """Prints the plot as text, or its points as JSON."""
    from roost.operations.plots.plot import read_curves

    picture, damaged = read_curves(packages, names=names, view=view, system=system)
    if as_json:
        terminal.print_json(picture)
    else:
        from roost.display.terminal_plots.terminal_plot import print_plot

        print_plot(picture, all_panels=bool(names))
    _report_left_out(picture.notes, damaged, picture.left_out, names)
    return 0


def _report_left_out(
    notes: Sequence[str], damaged: Sequence[str], left_out: Sequence[str], names: tuple[str, ...]
) -> None:
    for line in [*notes, *(f"warning: {line}" for line in damaged)]:
        terminal.print_status(terminal.escape_text(line))
    if left_out:
        why = "no metric of this name is recorded" if names else "nothing is recorded yet"
        terminal.print_status(terminal.escape_text(f"left out, {why}: {', '.join(left_out)}"))
