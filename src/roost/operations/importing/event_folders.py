"""Runs in TensorBoard's event files: each folder with such files is a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roost.operations import work_progress
from roost.operations.importing.imported_run import ImportedRun, RowMerger
from roost.train.mirrors.event_files import read_events

_PATTERN = "*.tfevents.*"


def find_folders(path: Path) -> list[Path]:
    """Returns the folders with event files, at and below a folder, sorted."""
    return sorted({file.parent for file in path.rglob(_PATTERN) if file.is_file()})


def read_folders(path: Path) -> Iterator[ImportedRun]:
    """Yields the run of each folder with event files.

    Raises:
        OSError: A file cannot be read.
    """
    if path.is_file():
        yield _run(path, path.parent, [path])
        return
    for folder in work_progress.track(find_folders(path), "reading event files"):
        yield _run(folder, path, sorted(folder.glob(_PATTERN)))


def _run(source: Path, root: Path, files: list[Path]) -> ImportedRun:
    merger, times = RowMerger(), list[float]()
    for file in files:  # readers of TensorBoard take them in the order of their names
        for event in read_events(file):
            if event.is_start:
                merger.begin_again(event.step)
            for scalar in event.scalars:
                merger.add(scalar.step, scalar.tag, scalar.value, event.time)
                times.append(event.time)
    below = source.relative_to(root) if source != root and source.is_relative_to(root) else Path()
    return ImportedRun(
        system="tensorboard",
        source=source,
        name="-".join(below.parts) or root.name,
        rows=merger.rows(),
        started=min(times, default=None),
        ended=max(times, default=None),
        left_out=["pictures, texts and histograms, if there are any"],
    )
