"""`roost show`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.cli.options.config_help import project_option
from roost.display import terminal


@click.command("show")
@click.argument("arguments", nargs=-1, metavar="PACKAGE|TASK | --data CONFIG [a.b=c]...")
@click.option("--data", is_flag=True, help="Show the data of a project or package.")
@project_option
@click.option(
    "-f",
    "--tuning",
    type=click.Path(path_type=Path),
    help="With --data: a second config, which overrides the first.",
)
@click.option("--all", "is_all", is_flag=True, help="Also each default, link and path that was not copied.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; with --data everything else goes to stderr."
)
def command(
    arguments: tuple[str, ...],
    data: bool,
    project: Path | None,
    tuning: Path | None,
    is_all: bool,
    as_json: bool,
) -> int:
    """Shows one package: its sessions, newest metrics, checkpoints, and the settings that were set.

    WARM marks a session that began with its imports done: it was forked from a template process of the lab.

    With --data: the content of each set, its batch plan, its first batch, and loading times. The project is
    copied as by `roost run` and its data are built, but no model. No file remains.

    \b
    roost show runs/NAME
    roost show 01m7ybz8bp                      # the package of a task
    roost show runs/NAME --all                 # with defaults and links, which --json has always
    roost show runs/NAME --json | jq .metrics
    roost show --data config.yaml
    roost show --data config.yaml data.num_workers=4 data.max_tokens=6000
    roost show --data runs/NAME                # with the package's code and settings
    """
    if data and is_all:
        raise UsageError("--all is for a package", fix="leave it out")
    if data:
        return _show_data(arguments, project, tuning, as_json=as_json)
    for option, value in (("--project", project), ("-f", tuning)):
        if value is not None:
            fix = f"type `roost show --data config.yaml {option} {value}`"
            raise UsageError(f"{option} is for --data", received=str(value), fix=fix)
    if not arguments:
        raise UsageError("no package is named", fix="type `roost show runs/NAME`")
    if len(arguments) > 1:
        raise UsageError(
            "`roost show` shows one package", received=" ".join(arguments), fix="type `roost show runs/NAME`"
        )
    return _show_package(Path(arguments[0]), is_all=is_all, as_json=as_json)


def _show_package(package: Path, *, is_all: bool, as_json: bool) -> int:
    from roost.operations.reading.show import show

    shown = show(package)
    if as_json:
        terminal.print_json(shown)
    else:
        from roost.cli.package_view import format_package

        for line in format_package(shown, is_all=is_all):
            click.echo(terminal.escape_line(line), color=terminal.allows_colours(sys.stdout))
    return 0


def _show_data(
    arguments: tuple[str, ...], project: Path | None, tuning: Path | None, *, as_json: bool
) -> int:
    from roost.cli import live_run
    from roost.cli.commands.run import config_and_overrides
    from roost.cli.wait_progress import StageScreen, format_unfinished
    from roost.operations.reading.show_data import ShowDataRequest, show_data

    config, overrides = config_and_overrides(None, arguments, command="show --data")
    request = ShowDataRequest(
        config=config, project=project, tuning=tuning, overrides=overrides, command=sys.argv
    )
    with show_data(request) as started:
        shown, is_printed = live_run.wait_for_outcome(started, StageScreen(started.stage))
    if as_json:
        terminal.print_json(shown)
    else:
        from roost.cli.data_view import format_splits

        for line in format_splits(shown.splits):
            click.echo(line, color=terminal.allows_colours(sys.stdout))
    if shown.state != "succeeded":
        terminal.print_status(format_unfinished(shown, is_printed=is_printed, what="inspection"))
    return shown.exit_code
