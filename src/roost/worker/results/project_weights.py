"""The weights in the state of a runner of DLNest's contract, by the names of its attributes.

Nothing is unpickled: what only a pickle can hold is no weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from roost.base.errors import CheckpointError, UsageError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.selection import CheckpointSelection
from roost.package.dlnest import original_checkpoint
from roost.package.dlnest.original_package import OriginalPackage
from roost.project.dlnest.classes.registered_modules import HELD
from roost.project.dlnest.run_state import LOOP, MODULE_NAMES, PROJECT

_NO_WEIGHTS = ("optimizer", "scheduler", "scaler")
_OF_OPTIMIZER = {"state", "param_groups"}


def is_projects(info: Manifest) -> bool:
    """Whether a checkpoint is that of a project of DLNest's contract."""
    return PROJECT in checkpoint.part_names(info)


def read(path: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """Reads the weights of a checkpoint, see `weights_of`.

    Raises:
        NotFound: There is no such checkpoint.
        Damaged: Its bytes differ from those that were written.
        CheckpointError: It has no weights, or a newer roost wrote it.
    """
    info, states = checkpoint.read(path, only=[PROJECT, LOOP])
    weights = weights_of(states[PROJECT], states[LOOP].get(MODULE_NAMES, {}))
    _require_weights(weights, path)
    return info, weights


def read_original(
    package: OriginalPackage, selected: CheckpointSelection
) -> tuple[Manifest, dict[str, Tensor], list[str]]:
    """Reads the weights of a checkpoint of DLNest's own programs, and returns notes for the user, too.

    Raises:
        UsageError: Several checkpoints, or the best, are selected.
        NotFound: There is no such checkpoint.
        CheckpointError: It cannot be read, or has no weights.
    """
    if selected.kind == "best" or selected.count > 1:
        raise UsageError(
            "the checkpoints of DLNest have no metrics, and are not averaged",
            received=str(selected),
            fix="name one: -c ID",
        )
    id, path = package.file(selected.id)
    found = original_checkpoint.read(id, path)
    weights, left = _without_ddp(weights_of(found.state, {})), found.not_read
    _require_weights(weights, path)
    notes = [f"objects that are no weights were left out, unread: {', '.join(left)}"] if left else []
    return found.info, weights, notes


def _require_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    if not weights:
        raise CheckpointError(
            f"{path.name} has no weights: getSaveDict() of its runner returned no tensors",
            where=path.parent.parent,
            fix="load it by a script: roost analyze PACKAGE -s SCRIPT",
        )


def _without_ddp(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights without the prefix that torch's DistributedDataParallel gives those of a module."""
    return {re.sub(r"^(\d+)\.module\.", r"\1.", name): value for name, value in weights.items()}


def weights_of(saved: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Tensor]:
    """Returns the tensors of a runner's state by dotted names, without those of optimizers.

    Args:
        saved: What a checkpoint holds of the project.
        names: The attributes of the modules by their numbers; a number without one is its own name.
    """
    runner = saved.get("runner", saved.get("model"))  # its name before 0.3.2
    if not isinstance(runner, Mapping):
        return {}
    found: dict[str, Tensor] = {}
    for key, state in runner.items():
        if key == HELD and isinstance(state, Mapping):
            found |= _tensors(state, "")
        elif key not in _NO_WEIGHTS:
            found |= _tensors({names.get(key, key): state}, "")
    return found


def _tensors(state: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Tensor]]:
    for key, value in state.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping) and not value.keys() >= _OF_OPTIMIZER:
            yield from _tensors(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield from _tensors(dict(enumerate(value)), f"{prefix}{key}.")
