"""The grid of an evaluation, ``cells.json``: each selected checkpoint with each variant on each set.

The rank that comes first makes it, under the lock of the folder; the others, and later sessions, take it as
it is: the checkpoints that ``best`` and ``last`` meant at the beginning remain those of the evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import ConfigError
from roost.evaluation import cell as cells
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.reports import report_files
from roost.package.kinds import CELL_TEMPLATE
from roost.package.results.evaluations.evaluation_folder import (
    CELLS,
    REQUEST,
    CellIdentity,
    Grid,
    GridCell,
    GridCheckpoint,
    read_grid,
)
from roost.package.seals.session_seal import FOLDER_SEAL

_SESSIONS = ("sessions", "system", "blackbox", "profile", "lock", "progress", "_output.txt")
_RESULTS = (REQUEST, CELLS, report_files.MARKDOWN, report_files.HTML, FOLDER_SEAL)
_OWN_NAMES = frozenset([*_SESSIONS, *_RESULTS])
"""What a folder of an evaluation has beside its cells."""
_MAX_NAME_BYTES = 220
"""Of a folder; file systems take 255, and a staging name adds 20."""


def write_grid(folder: Path, grid: Grid) -> None:
    """Writes cells.json. The caller holds the lock of the folder."""
    data = msgspec.json.format(msgspec.json.encode(grid), indent=1) + b"\n"
    durable.write(folder / CELLS, data)


def open_grid(folder: Path, make: Callable[[], Grid]) -> Grid:
    """Returns the grid of an evaluation, made by ``make`` if there is none yet. A finished cell whose folder
    was removed is to be computed again."""
    with cells.locked_folder(folder):
        before = read_grid(folder)
        found = make() if before is None else _without_removed(folder, before)
        if not found.is_finished:
            for old in (FOLDER_SEAL, report_files.HTML):  # of a time when it was finished
                durable.discard(folder / old)
        if before is None or not found.is_finished:
            write_grid(folder, found)
        return found


def _without_removed(folder: Path, grid: Grid) -> Grid:
    kept = [
        one
        if one.state != "finished" or (folder / one.folder).is_dir()
        else msgspec.structs.replace(one, state="waiting", same_as=None, found_in=None)
        for one in grid.cells
    ]
    return msgspec.structs.replace(grid, cells=kept)


# ---- the cells of a new grid ----------------------------------------------------------------------------


def make_cells(
    checkpoints: Mapping[str, GridCheckpoint],
    variants: Mapping[str, Mapping[str, Any]],
    sets: Mapping[str, EvaluatedSet],
    *,
    template: str,
    code: str,
    data: Mapping[str, str],
) -> list[GridCell]:
    """Returns the cells in their order, with the later ones of those that compute the same marked.

    Args:
        checkpoints: The weights, by the names of their folders.
        variants: The arguments of `Runner.test`, by the names of the variants.
        sets: The sets by name.
        template: The folder of a cell below that of the evaluation.
        code: The digest of the code.
        data: The digests of the sets by name.

    Raises:
        ConfigError: The template makes no folder for a cell, or the same for two.
    """
    made = []
    for checkpoint, weights in checkpoints.items():
        for variant, arguments in variants.items():
            for name, one in sets.items():
                folder = _cell_folder(template, variant=variant, checkpoint=checkpoint, dataset=name)
                identity = CellIdentity(
                    weights=weights.sha256,
                    variant=cells.variant_digest(arguments),
                    code=code,
                    data=data[name],
                )
                made.append(
                    GridCell(
                        variant=variant,
                        checkpoint=weights.name,
                        dataset=name,
                        folder=folder,
                        identity=identity,
                        samples=len(one.ids),
                        batches=len(one.sizes),
                    )
                )
    _require_different(made, template)
    return _with_equal_cells(made)


def _cell_folder(template: str, *, variant: str, checkpoint: str, dataset: str) -> str:
    """Returns the folder of a cell below that of its evaluation; ``/`` in the name of a set becomes ``%``."""
    return template.format(variant=variant, checkpoint=checkpoint, dataset=dataset.replace("/", "%"))


def _mistake(folder: Path) -> str | None:
    """Returns what is wrong with the folder of a cell, below that of the evaluation; None if nothing is."""
    parts = folder.parts
    if folder.is_absolute() or ".." in parts or not parts:
        return "it is not inside the evaluation"
    if parts[0] in _OWN_NAMES:
        return f"the evaluation has its own {parts[0]}"
    if any("\0" in one or durable.is_staging(one) for one in parts):
        return "a name in it is not valid"
    if any(len(os.fsencode(one)) > _MAX_NAME_BYTES for one in parts):
        return f"a name in it is longer than {_MAX_NAME_BYTES} bytes"
    return None


def _require_different(made: Sequence[GridCell], template: str) -> None:
    seen: dict[str, GridCell] = {}
    for one in made:
        if (mistake := _mistake(Path(one.folder))) is not None:
            raise ConfigError(
                f"this is no folder for a cell: {mistake}",
                setting="--template",
                received=one.folder,
                fix=f"write it as {CELL_TEMPLATE}, or rename the variant or the set",
            )
        if one.folder in seen:
            other = seen[one.folder]
            raise ConfigError(
                f"two cells have the same folder {one.folder}: {other.variant}, {other.checkpoint}, "
                f"{other.dataset} and {one.variant}, {one.checkpoint}, {one.dataset}",
                setting="--template",
                received=template,
                fix=f"name all three in it: {CELL_TEMPLATE}",
            )
        seen[one.folder] = one


def _with_equal_cells(made: Sequence[GridCell]) -> list[GridCell]:
    """Returns the cells, with the later ones of those that compute the same marked."""
    first: dict[CellIdentity, str] = {}
    found = []
    for one in made:
        same = first.setdefault(one.identity, one.folder)
        found.append(one if same == one.folder else msgspec.structs.replace(one, same_as=same))
    return found
