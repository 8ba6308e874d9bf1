"""The formats from which runs are imported. A new one is a row here, and a function that yields its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import NotFound, Refused, UsageError
from roost.operations.importing import (
    aim_runs,
    dlnest_packages,
    event_folders,
    mlflow_runs,
    table_files,
    wandb_runs,
)
from roost.operations.importing.imported_run import ImportedRun

AUTO = "auto"


class SourceFormat(NamedTuple):
    """A format of another system."""

    matches: Callable[[Path], bool]
    """Whether a source has it."""
    read: Callable[[Path], Iterator[ImportedRun]]
    """Yields the runs of a source. It executes nothing."""


FORMATS: Mapping[str, SourceFormat] = {
    "csv": SourceFormat(
        lambda path: path.is_file() and path.suffix.lower() in (".csv", ".tsv"), table_files.read_csv
    ),
    "parquet": SourceFormat(
        lambda path: path.is_file() and path.suffix.lower() in (".parquet", ".pq"), table_files.read_parquet
    ),
    "wandb": SourceFormat(
        lambda path: path.suffix == ".wandb" or (path.is_dir() and bool(wandb_runs.find_files(path))),
        wandb_runs.read_files,
    ),
    "aim": SourceFormat(aim_runs.is_repository, aim_runs.read_runs),
    "mlflow": SourceFormat(mlflow_runs.holds_runs, mlflow_runs.read_runs),
    "dlnest": SourceFormat(
        lambda path: path.is_dir() and bool(dlnest_packages.find_packages(path)),
        dlnest_packages.read_packages,
    ),
    "tensorboard": SourceFormat(
        lambda path: (
            ".tfevents." in path.name
            if path.is_file()
            else path.is_dir() and bool(event_folders.find_folders(path))
        ),
        event_folders.read_folders,
    ),
}
"""In the order in which a source is tried: a folder of another system may hold event files, too."""


def read_runs(source: Path, name: str = AUTO) -> Iterator[ImportedRun]:
    """Returns the runs of a source, each read when it is asked for.

    Args:
        source: A file or folder.
        name: A key of `FORMATS`; auto: the one that fits.

    Raises:
        NotFound: The source does not exist, or holds no run.
        UsageError: There is no such format, or none fits.
        Refused: It is a package of roost.
    """
    if name not in (AUTO, *FORMATS):
        fix = f"give one of {', '.join((AUTO, *FORMATS))}"
        raise UsageError("there is no such format", setting="--format", received=name, fix=fix)
    if not source.exists():
        raise NotFound("there is no such file or folder", received=str(source), fix="name one that exists")
    if (source / "request.json").exists():
        raise Refused("is a package of roost already", received=str(source), fix="`roost show` shows it")
    chosen = name if name != AUTO else next((one for one in FORMATS if FORMATS[one].matches(source)), None)
    if chosen is None:
        raise UsageError(
            "nothing here is known to be of another system",
            received=str(source),
            fix=f"name the file or folder of its runs, and --format: {', '.join(FORMATS)}",
        )
    return FORMATS[chosen].read(source)
