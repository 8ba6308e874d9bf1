"""The cells of a new grid: each selected checkpoint with each variant on each set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import ConfigError
from roost.evaluation import cell as cells
from roost.evaluation.cell import CellIdentity
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.grid import GridCell, GridCheckpoint
from roost.evaluation.reports import report_files
from roost.package.results import evaluations
from roost.package.seals.session_seal import FOLDER_SEAL

DEFAULT_TEMPLATE = "{variant}/{checkpoint}/{dataset}"
_SESSIONS = ("sessions", "system", "blackbox", "profile", "lock", "progress", "_output.txt")
_RESULTS = (evaluations.REQUEST, evaluations.CELLS, report_files.MARKDOWN, report_files.HTML, FOLDER_SEAL)
_OWN_NAMES = frozenset([*_SESSIONS, *_RESULTS])
"""What a folder of an evaluation has beside its cells."""
_MAX_NAME_BYTES = 220
"""Of a folder; file systems take 255, and a staging name adds 20."""


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
    return _with_twins(made)


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
                fix=f"write it as {DEFAULT_TEMPLATE}, or rename the variant or the set",
            )
        if one.folder in seen:
            other = seen[one.folder]
            raise ConfigError(
                f"two cells have the same folder {one.folder}: {other.variant}, {other.checkpoint}, "
                f"{other.dataset} and {one.variant}, {one.checkpoint}, {one.dataset}",
                setting="--template",
                received=template,
                fix=f"name all three in it: {DEFAULT_TEMPLATE}",
            )
        seen[one.folder] = one


def _with_twins(made: Sequence[GridCell]) -> list[GridCell]:
    """Returns the cells, with the later ones of those that compute the same marked."""
    first: dict[CellIdentity, str] = {}
    found = []
    for one in made:
        same = first.setdefault(one.identity, one.folder)
        found.append(one if same == one.folder else msgspec.structs.replace(one, same_as=same))
    return found
