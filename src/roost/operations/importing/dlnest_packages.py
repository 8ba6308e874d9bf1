"""Packages that DLNest itself wrote: settings, description, event files, and the log of the newest
checkpoint, which is read without running what is in its pickle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from roost.base.errors import CheckpointError
from roost.base.text.word_list import join_names
from roost.operations import work_progress
from roost.operations.importing import event_folders
from roost.operations.importing.imported_run import ImportedRun, RowMerger
from roost.package.dlnest import original_checkpoint, original_folder
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.records import ROW_FIELDS

_DESCRIPTION = "_desc: "


def find_packages(path: Path) -> list[Path]:
    """Returns the packages of DLNest: a folder, or those in it, sorted."""
    if original_folder.is_original(path):
        return [path]
    return sorted(one for one in path.iterdir() if one.is_dir() and original_folder.is_original(one))


def read_packages(path: Path) -> Iterator[ImportedRun]:
    """Yields the run of each package.

    Raises:
        OSError: A file cannot be read.
    """
    for package in work_progress.track(find_packages(path), "reading packages of DLNest"):
        yield _run(OriginalPackage.open(package))


def _run(package: OriginalPackage) -> ImportedRun:
    left_out = ["its code and checkpoints"]
    logged = [one for one in event_folders.read_folders(package.path) if one.rows]
    if len(logged) > 1:
        left_out.append(f"{len(logged) - 1} other folders of event files")
    nothing = ImportedRun(system="dlnest", source=package.path, name=package.path.name)
    found = max(logged, key=lambda one: one.ended or 0.0, default=nothing)
    if files := package.files():
        id, file = max(files.items())
        try:
            found = _with_log(found, id, file, left_out)
        except CheckpointError as error:
            left_out.append(f"the log: {error.message}")
    markers = sorted(one.name.removeprefix(_DESCRIPTION) for one in package.path.glob(f"{_DESCRIPTION}*"))
    return replace(
        found,
        system="dlnest",
        source=package.path,
        name=package.path.name,
        key=package.path.name,
        settings=original_folder.read_json(package.path / "args.json") or {},
        note="; ".join(markers),
        state="stopped",
        left_out=left_out,
    )


def _with_log(run: ImportedRun, id: int, file: Path, left_out: list[str]) -> ImportedRun:
    """Returns a run with the rows of the log of a checkpoint, in place of their copies in its event files.

    DLNest records no steps. That of a value is its place in its list, from 1 on. If the longest list has as
    many values in each epoch, one with a value for each epoch has the last steps of the epochs.

    Raises:
        CheckpointError: The checkpoint cannot be read.
    """
    from roost.project.dlnest.log_rows import as_number, log_entries  # it imports torch

    info, state, _ = original_checkpoint.read(id, file)
    log = state.get("log_dict")
    entries = dict(log_entries(log)) if isinstance(log, Mapping) else {}
    longest = max((len(one) for one in entries.values() if isinstance(one, list)), default=0)
    epoch_steps = longest // info.epoch if info.epoch and longest % info.epoch == 0 else 0
    written = file.stat().st_mtime
    merger, others = RowMerger(), dict[str, None]()
    for name, entry in entries.items():
        values = entry if isinstance(entry, list) else [entry]
        steps = range(1, len(values) + 1) if entry is values else [longest]
        if epoch_steps and len(values) == info.epoch:
            steps = range(epoch_steps, longest + 1, epoch_steps)
        for step, value in zip(steps, values, strict=True):
            if (number := as_number(value)) is None:
                others[name] = None
            else:
                epoch = math.ceil(step / epoch_steps) if epoch_steps else 0
                merger.add(step, name, number, written, epoch=epoch)
    for row in run.rows:
        for name, value in row.items():
            if name not in ROW_FIELDS and name not in entries:
                merger.add(row["step"], name, value, row["time"])
    if others:
        left_out.append(f"what is no number in the log: {join_names(list(others))}")
    return replace(run, rows=merger.rows(), ended=written)
