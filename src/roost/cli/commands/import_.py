"""`roost import`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.display import terminal


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--format",
    default="auto",
    metavar="NAME",
    help="csv, parquet, tensorboard, wandb, mlflow, aim or dlnest; default: the one that fits.",
)
@click.option("--name", metavar="NAME", help="The name of the package, of a source with one run.")
@click.option(
    "-o",
    "--save-root",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    help="The folder for the packages; default: runs.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: package, system, source and rows of each run."
)
def command(source: Path, format: str, name: str | None, root: Path, as_json: bool) -> int:
    """Makes packages out of the runs of other systems, for roost ls, show, plot and compare.

    SOURCE is a CSV or Parquet file with a row for each step; a folder of TensorBoard's event files; a folder
    of W&B with offline runs; MLflow's mlruns or its SQLite database; a repository of Aim; a package of
    DLNest. Each run becomes one package, whose path is printed: settings, rows, tags, name, times and state.
    Nothing of the source is executed or changed. A run that was imported before is named, and not imported
    again.

    \b
    roost import metrics.csv --name baseline
    roost import wandb                        # all offline runs of a folder
    roost import mlflow.db -o runs
    roost import lightning_logs
    """
    from roost.operations.importing.import_runs import import_runs

    found = []
    for one in import_runs(source, root=root, format=format, name=name):
        found.append(one)
        package = terminal.format_path(Path(one.package))
        if not one.is_new:
            terminal.print_status(terminal.escape_text(f"{package}: imported before"))
        for line in one.left_out:
            terminal.print_status(terminal.escape_text(f"{package}: not imported: {line}"))
        if not as_json:
            click.echo(terminal.escape_text(package))
    if as_json:
        terminal.print_json(found)
    return 0
