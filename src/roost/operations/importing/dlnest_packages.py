"""Packages that DLNest itself wrote: settings, description, and event files. The rows of their log are in
pickles of their checkpoints, which are not opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from roost.operations.importing import event_folders
from roost.operations.importing.imported_run import ImportedRun
from roost.package.dlnest import original_folder

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
    for package in find_packages(path):
        yield _run(package)


def _run(package: Path) -> ImportedRun:
    logged = [one for one in event_folders.read_folders(package) if one.rows]
    if logged:
        newest = max(logged, key=lambda one: one.ended or 0.0)
    else:
        newest = ImportedRun(system="dlnest", source=package, name=package.name)
    markers = sorted(one.name.removeprefix(_DESCRIPTION) for one in package.glob(f"{_DESCRIPTION}*"))
    return replace(
        newest,
        system="dlnest",
        source=package,
        name=package.name,
        key=package.name,
        settings=original_folder.read_json(package / "args.json") or {},
        note="; ".join(markers),
        state="stopped",
        left_out=[
            "the log in its checkpoints, which are pickles; its code and checkpoints",
            *([f"{len(logged) - 1} other folders of event files"] if len(logged) > 1 else []),
        ],
    )
