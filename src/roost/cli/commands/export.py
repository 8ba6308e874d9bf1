"""`roost export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.curves.export_records import ExportedRecords
    from roost.operations.models.export_weights import ExportedWeights

_WEIGHTS_OPTIONS = ("checkpoint", "average", "monitor", "mode", "averaged", "prefix")
_MAX_TIED = 3


@click.command("export")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE|FORMAT",
    help="The file: .pt, .pth or .safetensors; a format alone, such as pt: a file in the package's exports/.",
)
@click.option(
    "--records", metavar="KIND", help="Write the records: csv, parquet, tensorboard, wandb, mlflow or aim."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="With --records: the file or folder; default: in the package's exports/.",
)
@checkpoint_option()
@click.option(
    "--average", metavar="best:K", help="The mean of the best K checkpoints, or with last:K of the newest."
)
@click.option("--monitor", metavar="NAME", help="The metric of best; default: the first of checkpoint.best.")
@click.option(
    "--mode",
    type=click.Choice(["min", "max"]),
    help="With --monitor; default: as in checkpoint.best, or min.",
)
@click.option("--averaged", metavar="NAME", help="The weights of this average, one of the setting averages.")
@click.option(
    "--prefix", metavar="net.", help="Only weights with this prefix, which is removed from the names."
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def command(
    words: tuple[str, ...],
    weights: Path | None,
    records: str | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Writes the weights or the records of packages to plain files.

    Several packages are named as for roost plot: by a sweep, a pattern in quotes, a folder, or a query as for
    roost ls. Each gets a file in its exports/; -o names a folder for all, in which the files have the names
    of the packages.

    Weights are a dict of tensors with the names of the Runner's state_dict. The project and its code are not
    needed, and the training may still be running.

    \b
    roost export runs/NAME --weights pt                  # runs/NAME/exports/weights.pt
    roost export runs/NAME --weights net.pt              # torch.load("net.pt", weights_only=True)
    roost export runs/NAME --weights net.safetensors -c best --prefix net.
    roost export runs/NAME --weights net.pt --average best:3 --monitor valid/accuracy --mode max
    roost export runs/NAME --weights net.pt --averaged NAME
    roost export runs/NAME --records csv                 # runs/NAME/exports/records.csv; or -o FILE
    roost export 'runs/try-*' --records csv -o curves    # curves/try-1.csv, …
    """
    from roost.operations.listing.named_packages import select_packages

    if (weights is None) == (records is None):
        fix = "write `roost export runs/NAME --weights net.pt`, or `--records csv -o curves.csv`"
        raise UsageError("give either --weights or --records", fix=fix)
    if weights is not None and output is not None:
        raise UsageError("-o is for --records", received=str(output), fix="name the file after --weights")
    for name in _WEIGHTS_OPTIONS if weights is None else ():
        if options[name] is not None:
            raise UsageError(
                "is for --weights", setting=f"--{name}", received=options[name], fix="leave it out"
            )
    packages = select_packages(words)
    is_several = len(packages) > 1
    if is_several and weights is not None and weights.suffix:
        raise UsageError(
            f"{len(packages)} packages have no place in one file",
            setting="--weights",
            received=str(weights),
            fix=f"give the format alone, --weights {weights.suffix[1:]}: a file in the exports/ of each",
        )
    results, codes = [], []
    for package in packages:
        if weights is not None:
            found: Any = _export_weights(package, weights, as_json=as_json, **options)
            codes.append(found.exit_code)
        else:
            file = _file_in(output, package, str(records)) if is_several and output is not None else output
            found = _export_records(
                package, str(records), file, overwrite=options["overwrite"], as_json=as_json
            )
        results.append(found)
    if as_json:
        terminal.print_json(results if is_several else results[0])
    return max(codes, default=0)


def _file_in(folder: Path, package: Path, kind: str) -> Path:
    """Returns the file or folder of one of several packages, and creates the folder of all."""
    from roost.base import durable

    durable.make_folder(folder, exist_ok=True)
    if not folder.is_dir():
        raise UsageError(
            "is a file, and each package needs one", setting="-o", received=str(folder), fix="name a folder"
        )
    from roost.operations.curves.export_records import FOLDER_KINDS

    return folder / (package.name if kind in FOLDER_KINDS else f"{package.name}.{kind}")


def _export_records(
    package: Path, kind: str, output: Path | None, *, overwrite: bool, as_json: bool
) -> ExportedRecords:
    from roost.operations.curves.export_records import export_records

    exported = export_records(package, kind=kind, output=output, overwrite=overwrite)
    if exported.damage:
        terminal.print_status(f"warning: {terminal.escape_text(exported.damage)}")
    elif torn := exported.torn:
        lines = "1 line could not be read and is" if torn == 1 else f"{torn} lines could not be read and are"
        terminal.print_status(
            f"{lines} left out; a kill can leave an incomplete last line in each session, which is harmless"
        )
    if not as_json:
        click.echo(output or exported.path)
    return exported


def _export_weights(package: Path, file: Path, *, as_json: bool, **options: Any) -> ExportedWeights:
    from roost.cli import live_run
    from roost.cli.wait_progress import StageScreen
    from roost.operations.models.export_weights import ExportWeightsRequest, export_weights

    with export_weights(ExportWeightsRequest(package=package, output=file, **options)) as started:
        found, is_printed = live_run.wait_for_outcome(started, StageScreen(lambda: "reading the weights"))
    for note in found.notes:
        terminal.print_status(terminal.escape_text(note))
    if found.state != "succeeded":
        why = "" if is_printed else f": {terminal.escape_text(found.error or 'no reason is known')}"
        terminal.print_status(f"{terminal.format_state(found.state)}{why}; no file was written")
        return found
    for line in _summary_lines(found):
        terminal.print_status(terminal.escape_text(line))
    if not as_json:
        click.echo(found.path if file.suffix == "" else file)
    return found


def _summary_lines(found: ExportedWeights) -> list[str]:
    from roost.base.text.byte_sizes import format_bytes

    of = ", ".join(f"{one['id']} ({terminal.format_position(one)})" for one in found.checkpoints)
    mean = "the mean of checkpoints" if len(found.checkpoints) > 1 else "checkpoint"
    average = f", the average {found.averaged}" if found.averaged else ""
    size = f"{found.tensors} tensors, {found.numbers:,} numbers, {format_bytes(found.bytes)}"
    lines = [f"{mean} {of}{average}: {size}"]
    if found.prefix is not None:
        others = len(found.left_out)
        lines.append(f"{found.prefix} removed from the names; {others} weight{'s' * (others != 1)} left out")
    if found.tied:
        tied = [f"{name} = {of}" for name, of in list(found.tied.items())[:_MAX_TIED]]
        more = " …" if len(found.tied) > _MAX_TIED else ""
        kept = "stored under each name" if found.path.endswith(".safetensors") else "stored as one tensor"
        lines.append(f"tied: {', '.join(tied)}{more}; {kept}")
    return lines
