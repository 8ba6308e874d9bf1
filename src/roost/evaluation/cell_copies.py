"""Copies of finished cells: a cell that computes the same as a finished one is copied and not computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import RoostError
from roost.evaluation import cell as cells
from roost.evaluation.cell import CellIdentity
from roost.evaluation.grid import Grid, GridCell
from roost.package.results import evaluations

_COPY_BYTES = 2**20

Variants = Mapping[str, dict[str, Any]]
"""The arguments of `Runner.test` by the names of the variants."""


def copy_known(
    package: Path, folder: Path, grid_cells: Sequence[GridCell], variants: Variants
) -> list[GridCell]:
    """Returns the cells of a new grid; those that another evaluation of the package has finished are copied
    from it.

    Args:
        package: The package.
        folder: The folder of the evaluation that the grid is of.
        grid_cells: The cells.
        variants: The variants of the grid.

    Raises:
        OSError: A copy cannot be written.
    """
    known = finished_cells(package, without=folder)
    made = []
    for one in grid_cells:
        if (source := known.get(one.identity)) is not None:
            _copy_cell(source, folder, one, variants)
            found_in = str(source.relative_to(package))
            one = msgspec.structs.replace(one, state="finished", found_in=found_in)
        made.append(one)
    return made


def copy_to_twins(folder: Path, grid: Grid, one: GridCell) -> list[GridCell]:
    """Copies a finished cell to the later cells of its grid that compute the same, and returns these.

    Raises:
        OSError: A copy cannot be written.
    """
    twins = [twin for twin in grid.cells if twin.same_as == one.folder and twin.state != "finished"]
    for twin in twins:
        with cells.locked_folder(folder):
            _copy_cell(folder / one.folder, folder, twin, grid.variants)
    return twins


def finished_cells(package: Path, *, without: Path) -> dict[CellIdentity, Path]:
    """Returns the finished cells of all other evaluations of a package, by what they compute. One with
    skipped samples is not among them: what failed there may succeed, and an error may be asked for here."""
    found: dict[CellIdentity, Path] = {}
    for evaluation in evaluations.read_all(package):
        if evaluation.path == without:
            continue
        for one in evaluation.cells():
            with suppress(RoostError):
                known = cells.read_cell(one.path)
                summary = one.summary
                if known is not None and summary is not None and not summary.get("num_skipped"):
                    found.setdefault(known.identity, one.path)
    return found


def _copy_cell(source: Path, folder: Path, one: GridCell, variants: Variants) -> None:
    """Copies a finished cell into the folder of an evaluation, under the names that it has in its grid."""
    final = folder / one.folder
    _copy_folder(source, final)
    copied = cells.read_cell(final)
    assert copied is not None
    own = msgspec.structs.replace(
        copied, variant=one.variant, arguments=variants[one.variant], checkpoint=one.checkpoint
    )
    cells.write_cell(final, own)


def _copy_folder(source: Path, final: Path) -> None:
    durable.make_folders(final.parent)
    if (final / evaluations.SUMMARY).is_file():
        return
    durable.discard(final)  # one that was begun
    staging = durable.make_staging_folder(final)
    for path in sorted(source.rglob("*")):
        target = staging / path.relative_to(source)
        if path.is_dir():
            durable.make_folder(target, exist_ok=True)
        elif path.is_file() and not durable.is_staging(path.name):
            _copy_file(path, target)
    durable.commit_folder(staging, final)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as opened, durable.NewFile(target) as made:
        while data := opened.read(_COPY_BYTES):
            made.write(data)
