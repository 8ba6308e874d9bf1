"""`roost predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.cli.options.device_option import device_options, take_device
from roost.cli.wait_progress import LoggedStageScreen
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.models.predict import PredictOutcome


@click.command("predict")
@click.argument("package", required=False, type=click.Path(path_type=Path))
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@click.option("--data", "source", required=True, help="A set (test, valid/NAME), or a path for the Dataset.")
@checkpoint_option()
@click.option("--averaged", metavar="NAME", help="The weights of this average, one of the setting averages.")
@device_options("auto", verb="predict")
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Write to this new folder, not to one in the package.",
)
@click.option("--batch-size", type=int, metavar="N", help="Samples per batch; default: as in the settings.")
@click.option("--num-workers", type=int, metavar="N", help="Loader workers; default: as in the settings.")
@click.option("--limit", type=int, metavar="N", help="Only the first N samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def command(package: Path | None, record: Path | None, as_json: bool, **options: Any) -> int:
    """Runs the Runner's `predict` on data, in evaluation mode. The training may still be running.

    --data is the name of a set, or an argument for the Dataset's `predict`; without that method it is a .npy,
    .npz or .csv file. The results are in the order of the set: a line for each sample in predictions.jsonl;
    values with more than a few numbers per sample in NAME.npy. Ctrl-C ends the command, and no results are
    kept.

    \b
    roost predict -r runs/NAME --data test
    roost predict -r runs/NAME --data photos/ -c best -o labels
    """
    if (package is None) == (record is None):
        raise UsageError("name one package", fix="type `roost predict -r runs/NAME --data test`")
    from roost.cli import live_run
    from roost.operations.models.predict import PredictRequest, predict

    device = take_device(options) or "auto"
    request = PredictRequest(package=package or record, device=device, command=sys.argv, **options)  # type: ignore[arg-type]
    with predict(request) as started:
        found, is_printed = live_run.wait_for_outcome(
            started, LoggedStageScreen(lambda: started.stage() or "building")
        )
    if as_json:
        terminal.print_json(found)
    _report(found, is_printed=is_printed, is_plain=not as_json)
    return found.exit_code


def _report(found: PredictOutcome, *, is_printed: bool, is_plain: bool) -> None:
    from roost.package.results import predictions

    state = terminal.format_state(found.state)
    for note in found.notes:
        terminal.print_status(terminal.escape_text(note))
    if found.state != "succeeded" or found.folder is None or found.meta is None:
        why = (
            ""
            if is_printed
            else f": {terminal.escape_text(found.error or found.reason or 'no reason is known')}"
        )
        terminal.print_status(f"{state}{why}; no results are kept")
        return
    place = Path(found.folder)
    files = [predictions.PREDICTIONS_FILE, *(one["file"] for one in found.meta.values.values() if one)]
    for name in files if is_plain else []:
        click.echo(terminal.format_path(place / name))
    samples = f"{found.meta.count:,} sample{'s' * (found.meta.count != 1)}"
    terminal.print_status(
        f"{state} in {terminal.format_duration(found.seconds)}: {samples}; {terminal.format_path(place)}"
    )
