"""The cells of a new grid: each selected checkpoint with each variant on each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import ConfigError
from roost.evaluation import cell as cells
from roost.evaluation.cell import CellIdentity
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.grid import GridCell, GridCheckpoint

DEFAULT_TEMPLATE = "{variant}/{checkpoint}/{dataset}"
_OWN_FOLDERS = ("sessions", "system", "blackbox", "lock")
"""Entries that the folder of an evaluation has beside its cells."""


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


def _require_different(made: Sequence[GridCell], template: str) -> None:
    seen: dict[str, GridCell] = {}
    for one in made:
        parts = Path(one.folder).parts
        if Path(one.folder).is_absolute() or ".." in parts or not parts or parts[0] in _OWN_FOLDERS:
            raise ConfigError(
                "this is no folder for a cell",
                setting="--template",
                received=one.folder,
                fix=f"write it as {DEFAULT_TEMPLATE}",
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
