"""``export --records``: the rows of a package, in file formats of other programs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.base.errors import NotFound, Refused, UsageError
from roost.config.sections.mirrors import MlflowSettings, WandbSettings
from roost.operations.reading import package_schema
from roost.package import records
from roost.package.package import PackageFolder
from roost.package.records import Columns
from roost.package.results import exports
from roost.train.mirrors.mirror_kinds import require_library
from roost.train.mirrors.record_feed import RecordFeed
from roost.train.mirrors.sink import RunIdentity, Sink

FOLDER_KINDS = ("tensorboard", "wandb", "mlflow", "aim")
"""The kinds that are folders; the others are files."""


@dataclass(frozen=True)
class ExportedRecords:
    """The result of an export."""

    path: str
    kind: str
    package: str
    rows: int
    names: list[str]
    """The names of the values, with times and memory (``perf/…``)."""
    torn: int
    """The number of torn lines, which are left out."""
    damage: str | None
    """Which rows are evidently missing; None: none, as far as that is seen without `verify`."""


def export_records(
    package: Path | str, *, kind: str, output: Path | None = None, overwrite: bool = False
) -> ExportedRecords:
    """Writes the effective rows of all sessions. The package may be running; it is only read.

    Args:
        package: The package.
        kind: csv: a line for each row; parquet: columns of 64-bit numbers, null if a row has no value;
            tensorboard: a folder of event files, with the media; wandb: a folder for `wandb sync`; mlflow: a
            folder with MLflow's database and files; aim: a folder with a repository ``.aim``.
        output: The file, or the folder; None: ``records.csv``, ``records.parquet``, or a folder of the name
            of the kind, in the package's ``exports``.
        overwrite: Replace an existing file, atomically; never a folder.

    Raises:
        NotFound: There is no such package, no folder to write to, or nothing is recorded yet.
        UsageError: There is no such kind.
        Refused: ``output`` exists already; or it would be in a package that a newer roost has written, or
            that is in the trash.
        ConfigError: A library is not installed.
        DamagedPackage: A file of the package is not as roost writes it.
        OSError: It cannot be written.
    """
    write = _WRITERS.get(kind)
    if write is None:
        raise UsageError("there is no such kind", received=kind, fix=f"give one of {', '.join(_WRITERS)}")
    opened = package_schema.open_checked(package)
    if output is None:
        package_schema.require_changeable(opened.path)
        name = kind if kind in FOLDER_KINDS else f"records.{kind}"
        output = exports.export_path(opened, name, fix=f"name it: -o {name}")
    _check_output(output, is_folder=kind in FOLDER_KINDS, overwrite=overwrite)
    durable.discard_abandoned(output.absolute())
    columns = opened.records()
    if not columns.rows:
        package_schema.require_folders(opened)
        no_row = f"no row can be read: {columns.torn} of its lines are torn"
        raise NotFound(no_row if columns.torn else "nothing is recorded yet", where=opened.path)
    names = list(dict.fromkeys(name for row in columns.rows for name in records.values(row)))
    rows = write(opened, columns, names, output)
    damage = package_schema.records_damage(opened, columns.torn)
    return ExportedRecords(str(output.absolute()), kind, str(opened.path), rows, names, columns.torn, damage)


def _check_output(output: Path, *, is_folder: bool, overwrite: bool) -> None:
    parent = output.absolute().parent
    if not parent.is_dir():
        raise NotFound("there is no such folder", setting="-o", received=str(parent), fix="create it first")
    is_free = not output.exists() or (is_folder and output.is_dir() and not any(output.iterdir()))
    if is_free or (overwrite and output.is_file() and not is_folder):
        return
    is_replaceable = output.is_file() and not is_folder
    raise Refused(
        "exists already" if is_replaceable else "exists already, and --overwrite replaces only files",
        setting="-o",
        received=str(output),
        fix="give another name" + (", or replace it: --overwrite" if is_replaceable else ""),
    )


def _write_csv(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    from roost.train.mirrors.csv_sink import CsvSink

    staging = durable.staging_name(output)
    try:
        rows = _feed(package, CsvSink(staging))
        durable.write(output, staging.read_bytes())
    finally:
        durable.discard(staging)
    return rows


def _write_tensorboard(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    require_library("tensorboard", "--records")
    from roost.train.mirrors.tensorboard_sink import TensorBoardSink

    return _feed(package, TensorBoardSink(output))


def _write_wandb(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    require_library("wandb", "--records")
    from roost.train.mirrors.wandb_sink import WandbSink

    with contextlib.redirect_stdout(io.StringIO()):  # a mirror's line for the output of its run
        return _feed(package, WandbSink(WandbSettings(mode="offline"), _identity(package), output))


def _write_mlflow(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    require_library("mlflow", "--records")
    from roost.train.mirrors.mlflow_sink import MlflowSink

    # A server that the environment names is for mirrors: an export is a folder.
    sink = MlflowSink(MlflowSettings(), _identity(package), output, environment={})
    with contextlib.redirect_stdout(io.StringIO()):
        return _feed(package, sink)


def _write_aim(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    require_library("aim", "--records", extra="aim")
    from aim.sdk.repo import Repo
    from aim.sdk.run import BasicRun

    identity = _identity(package)
    durable.make_folder(output, exist_ok=True)
    run = BasicRun(repo=Repo(str(output), init=True), experiment=identity.project)
    try:
        run.name = identity.name
        for name, value in identity.settings.items():
            run[name] = value
        for row in columns.rows:
            for name, value in records.values(row).items():
                # Its public `track` would date all rows from now.
                run._tracker._track(value, row["time"], name, row["step"], row["epoch"])
    finally:
        run.close()
    return len(columns.rows)


def _identity(package: PackageFolder) -> RunIdentity:
    project = Path(str(package.request.get("project") or package.path.parent)).name
    return RunIdentity(name=package.path.name, project=project or "roost", settings=package.settings)


def _feed(package: PackageFolder, sink: Sink) -> int:
    feed = RecordFeed(package.path, sink)
    rows = feed.open()
    feed.close("finished")
    return rows


def _write_parquet(package: PackageFolder, columns: Columns, names: list[str], output: Path) -> int:
    require_library("pyarrow", "--records", extra="data")
    import pyarrow
    from pyarrow import parquet

    rows = columns.rows
    integers = {
        name: pyarrow.array([row[name] for row in rows], pyarrow.int64()) for name in ("step", "epoch")
    }
    values = {
        name: pyarrow.array([_float(row.get(name)) for row in rows], pyarrow.float64(), from_pandas=False)
        for name in ("time", *names)
    }
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({**integers, **values}), buffer)
    durable.write(output, buffer.getvalue())
    return len(rows)


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


_WRITERS: dict[str, Callable[[PackageFolder, Columns, list[str], Path], int]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "tensorboard": _write_tensorboard,
    "wandb": _write_wandb,
    "mlflow": _write_mlflow,
    "aim": _write_aim,
}
