"""Copies of finished cells: a cell that computes the same as a finished one is copied and not computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import RoostError
from roost.evaluation import cell as cells
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.evaluations.evaluation_folder import CellIdentity, GridCell
from roost.package.seals import session_seal
from roost.package.seals.session_seal import FOLDER_SEAL

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
        if (source := _whole(known.get(one.identity, ()))) is not None:
            _copy_cell(source, folder, one, variants)
            found_in = str(source.relative_to(package))
            one = msgspec.structs.replace(one, state="finished", found_in=found_in)
        made.append(one)
    return made


def copy_to_equal_cells(folder: Path, one: GridCell, equal: Sequence[GridCell], variants: Variants) -> None:
    """Copies a finished cell to the later cells of its grid that compute the same.

    Raises:
        OSError: A copy cannot be written.
    """
    for one_equal in equal:
        with cells.locked_folder(folder):
            _copy_cell(folder / one.folder, folder, one_equal, variants)


def finished_cells(package: Path, *, without: Path) -> dict[CellIdentity, list[Path]]:
    """Returns the finished cells of all other evaluations of a package, by what they compute. One with
    skipped samples is not among them: what failed there may succeed, and an error may be asked for here."""
    found: dict[CellIdentity, list[Path]] = {}
    for evaluation in evaluation_folder.read_all(package):
        if evaluation.path == without:
            continue
        for one in evaluation.cells():
            with suppress(RoostError):
                known = evaluation_folder.read_cell(one.path)
                summary = one.summary
                if known is not None and summary is not None and not summary.get("num_skipped"):
                    found.setdefault(known.identity, []).append(one.path)
    return found


def _whole(sources: Sequence[Path]) -> Path | None:
    """Returns the first of some equal cells whose files are as they were written. A cell without a seal, of
    an older roost, is computed again: nothing is known about it."""
    for source in sources:
        if not (source / FOLDER_SEAL).is_file():
            continue
        if (damage := session_seal.folder_damage(source)) is None:
            return source
        print(f"{source} is evaluated again: {damage}", flush=True)
    return None


def _copy_cell(source: Path, folder: Path, one: GridCell, variants: Variants) -> None:
    """Copies a finished cell into the folder of an evaluation, under the names that it has in its grid."""
    final = folder / one.folder
    durable.make_folders(final.parent)
    if (final / FOLDER_SEAL).is_file():
        return
    durable.discard(final)  # one that was begun
    staging = durable.make_staging_folder(final)
    _copy_files(source, staging)
    copied = evaluation_folder.read_cell(staging)
    assert copied is not None
    own = msgspec.structs.replace(
        copied, variant=one.variant, arguments=variants[one.variant], checkpoint=one.checkpoint
    )
    cells.write_cell(staging, own)
    session_seal.write_folder_seal(staging, max_seconds=math.inf)
    durable.commit_folder(staging, final)


def _copy_files(source: Path, staging: Path) -> None:
    for path in sorted(source.rglob("*")):
        target = staging / path.relative_to(source)
        if path.is_dir():
            durable.make_folder(target, exist_ok=True)
        elif path.is_file() and not durable.is_staging(path.name) and path != source / FOLDER_SEAL:
            _copy_file(path, target)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as opened, durable.NewFile(target) as made:
        while data := opened.read(_COPY_BYTES):
            made.write(data)
