"""`roost tune`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options.config_help import ConfigCommand, config_options
from roost.cli.options.device_option import device_options, take_device
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.tuning.tune import TuneOutcome


@click.command("tune", cls=ConfigCommand)
@click.argument("arguments", nargs=-1, metavar="[CONFIG] [a.b=c]...")
@config_options
@click.option(
    "--what",
    metavar="NAMES",
    help="What to measure: workers,prefetch,batch_size,step_mode,lr. Default: all of these.",
)
@click.option(
    "--apply",
    "applied",
    metavar="NAMES",
    help="Write settings plainly that change the results: batch_size,step_mode,lr. Default: as comments.",
)
@click.option(
    "--seconds", type=float, default=60.0, show_default=True, help="The time of all measurements together."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("tuned.yaml"),
    show_default=True,
    help="The tuning file.",
)
@device_options("auto", verb="measure")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def command(arguments: tuple[str, ...], config: Path | None, as_json: bool, **options: Any) -> int:
    """Measures other settings of a run, and writes the fast ones into a tuning file.

    The project is copied as by `roost run`, and steps of real training are measured there, in several rounds.
    A setting remains unless another value is clearly faster. What changes no bit of the run is written
    plainly: loader workers and prefetch. Batch size, step mode and learning rate (by a range test) are
    comments in the file, unless --apply names them. No run remains, and save_root is not touched.

    \b
    roost tune config.yaml
    roost run config.yaml -f tuned.yaml
    roost tune config.yaml --what workers,prefetch --seconds 30
    roost tune config.yaml --what batch_size,lr --apply batch_size,lr -o large.yaml
    """
    from roost.cli import live_run
    from roost.cli.commands.run import config_and_overrides
    from roost.cli.plain_output import PlainScreen
    from roost.cli.wait_progress import format_unfinished
    from roost.operations.tuning.tune import TuneRequest, parse_targets, tune

    device = take_device(options) or "auto"
    what, applied = options.pop("what"), options.pop("applied")
    targets = [] if what is None else parse_targets(what, setting="--what")
    apply = [] if applied is None else parse_targets(applied, setting="--apply")
    config, overrides = config_and_overrides(config, arguments, command="tune")
    request = TuneRequest(
        config=config,
        overrides=overrides,
        device=device,
        targets=targets,
        apply=apply,
        command=sys.argv,
        **options,
    )
    with tune(request) as started:
        outcome, is_printed = live_run.wait_for_outcome(started, PlainScreen(sys.stderr))
    if as_json:
        terminal.print_json(outcome)
    elif outcome.tuning_file is not None:
        _print_results(outcome)
    if outcome.tuning_file is None:
        terminal.print_status(format_unfinished(outcome, is_printed=is_printed, what="measurement"))
    return outcome.exit_code


def _print_results(outcome: TuneOutcome) -> None:
    from roost.cli.surface import print_picture
    from roost.display.tuning_table import tuning_lines

    assert outcome.tuning_file is not None
    for line in tuning_lines(outcome.report):
        click.echo(terminal.escape_text(line))
    found = outcome.report.range_test
    if found is not None and found.smoothed and sys.stdout.isatty():
        from roost.display.terminal_plots.terminal_plot import print_scatter
        from roost.operations.tuning.rate_picture import rate_points

        print_scatter(rate_points(found))
    click.echo(f"tuning file: {terminal.escape_text(outcome.tuning_file)}")
    if outcome.picture is not None:
        print_picture(Path(outcome.picture))
