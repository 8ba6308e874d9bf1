"""Reads weights that roost wrote: of a package, a checkpoint or a folder of checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from roost.base.errors import NotFound, UsageError
from roost.package.checkpoints import checkpoint as checkpoints
from roost.package.checkpoints import retention, selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.checkpoint_store import CheckpointStore
from roost.package.checkpoints.selection import CheckpointSelection
from roost.package.package import PackageFolder
from roost.train.optim import weight_average as averages
from roost.train.weights.weight_files import WeightSource

T = TypeVar("T")
CheckpointChoice = int | Literal["best", "last"]
MODEL_PART, TRAINER_PART = "model", "trainer"


def read(path: Path, *, checkpoint: CheckpointChoice = "last", average: str | None = None) -> WeightSource:
    """Reads the weights of a package (its newest good checkpoint, the best one, or one by its id), of a
    folder of checkpoints, or of one checkpoint.

    Args:
        path: The folder.
        checkpoint: Which checkpoint; "best" is the best by the first rule of ``checkpoint.best`` of the
            package.
        average: Name of an average to read in place of the trained weights.

    Raises:
        UsageError: ``path`` is one checkpoint, but ``checkpoint`` chooses another.
        NotFound: The folder is neither a package nor a checkpoint, or it has no such checkpoint or average.
        CheckpointError: The checkpoint is damaged, or of a newer roost.
        OSError: It cannot be read.
    """
    load = functools.partial(checkpoints.read, only=[MODEL_PART, TRAINER_PART] if average else [MODEL_PART])
    if (path / "MANIFEST.json").is_file():
        if checkpoint != "last":
            raise UsageError(
                "the path is one checkpoint already", received=checkpoint, fix="leave `checkpoint` out"
            )
        return _source(path, path, *load(path), average, [])
    package = PackageFolder.open(path) if (path / "request.json").is_file() else None
    store = package.store() if package is not None else CheckpointStore(path)
    if package is None and not checkpoints.ids(path):
        raise NotFound(
            "the folder is neither a package nor a checkpoint",
            received=str(path),
            fix="give the folder of a run, one of its Checkpoints/state_N.ckpt, or a weights file",
        )
    notes: list[str] = []
    if checkpoint == "best":
        found = _best(package, load, notes)
    elif checkpoint == "last":
        newest, notes = store.newest_readable(load)
        if newest is None:
            raise NotFound("the package has no checkpoint yet", where=path, fix="wait for its first one")
        found = newest
    else:
        found = load(store.path(checkpoint))
    return _source(path, checkpoints.checkpoint_folder(store.folder, found[0].id), *found, average, notes)


def _best(package: PackageFolder | None, load: Callable[[Path], T], notes: list[str]) -> T:
    if package is None or (rule := selection.first_best_rule(package)) is None:
        raise NotFound(
            "the best checkpoint is not defined: checkpoint.best of the package is empty",
            fix="use checkpoint: last, or an id",
        )
    line = package.store().lineage()
    if line and not retention.best_checkpoints(line, rule):
        raise NotFound(f"no checkpoint was measured by {rule.monitor}", fix="use checkpoint: last")
    return next(selection.load_each(package, CheckpointSelection(kind="best", rule=rule), load, notes))


def _source(
    path: Path, folder: Path, info: Manifest, states: Mapping[str, Any], average: str | None, notes: list[str]
) -> WeightSource:
    model = states[MODEL_PART]
    # A checkpoint of a hand-written loop has the state_dict itself.
    weights = dict(model["state"] if {"state", "hidden"} <= set(model) else model)
    description, part = f"checkpoint {info.id} of step {info.step}", MODEL_PART
    if average is not None:
        found = averages.stored_weights(states[TRAINER_PART].get("hooks", {}), average, where=folder)
        weights |= found
        description, part = f"{description}, average {average!r}", TRAINER_PART
        if not found:
            notes = [*notes, f"the average {average!r} was not updated yet: these are the trained weights"]
    digest, size = checkpoints.tensor_digest(info, part)
    return WeightSource(weights, path, description, digest or "", size, notes)
