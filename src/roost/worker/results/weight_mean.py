"""The weights in a checkpoint's files, and the mean over several checkpoints. Needs no code of the
project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import CheckpointError, NotFound
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.train.optim import weight_average as averages
from roost.worker.results import project_weights

_PART = "model"
"""The part of a checkpoint that contains the Runner."""

Weights = dict[str, Any]
"""A state_dict of the Runner: tensors by name, tied ones as the same object; extra state unchanged."""


def read_weights(path: Path, *, average: str | None = None) -> tuple[Manifest, Mapping[str, Any]]:
    """Reads the Runner of a checkpoint: ``state``, its state_dict, and the other keys that `ModuleState`
    saves.

    Args:
        path: Folder of the checkpoint.
        average: Name of a weight average, whose weights are taken instead of the trained ones.

    Raises:
        NotFound: There is no such checkpoint, or it contains no such average.
        Damaged: Its bytes differ from those that were written.
        CheckpointError: A newer roost or another program wrote it.
    """
    if project_weights.is_projects(checkpoint.read_manifest(path)):
        if average is not None:
            raise NotFound(
                "roost keeps no averages of weights in a run of DLNest's contract",
                setting="--averaged",
                received=average,
                fix="leave it out; an average that the project keeps is among its modules",
            )
        info, weights = project_weights.read(path)
        return info, {"state": weights}
    if average is None:
        info, states = checkpoint.read(path, only=[_PART])
        return info, states[_PART]
    info, states = checkpoint.read(path, only=[_PART, "trainer"])
    module = states[_PART]
    return info, {
        **module,
        "state": _averaged(module["state"], states["trainer"]["hooks"], average, path.name),
    }


def _averaged(weights: Weights, hooks: Mapping[str, Any], name: str, where: str) -> Weights:
    found = averages.stored_weights(hooks, name, where=where, setting="--averaged")
    if not found:
        raise NotFound(
            f"the average {name} has not begun at this checkpoint", where=where, fix="choose a later one"
        )
    averaged = dict(weights)
    cast: dict[tuple[int, torch.dtype], Tensor] = {}
    for key, average in found.items():
        # The average of weights with less than 32 bits is stored in float32.
        of = (id(average), weights[key].dtype)
        averaged[key] = cast.setdefault(of, average.to(weights[key].dtype))
    return averaged


class WeightMean:
    """The mean of the weights of several checkpoints, summed in float64 in the order in which they are added.

    Integers, booleans and extra state are those of the first checkpoint. The mean of one checkpoint has its
    exact bits.
    """

    def __init__(self) -> None:
        self.infos: list[Manifest] = []
        self._first: Weights = {}
        self._sums: dict[str, Tensor] = {}

    def add(self, info: Manifest, weights: Weights) -> None:
        """Adds one checkpoint.

        Raises:
            CheckpointError: Its names, shapes, types or ties differ from those of the first.
        """
        if not self.infos:
            self._first = weights
        else:
            _require_alike(self.infos[0], self._first, info, weights)
            if len(self.infos) == 1:
                self._sums = {name: _to_64_bit(self._first[name]) for name in _averaged_names(self._first)}
            for name, total in self._sums.items():
                total += _to_64_bit(weights[name])
        self.infos.append(info)

    def weights(self) -> Weights:
        """Returns the mean, cast to the original types; tied weights are one tensor again."""
        made = {
            id(self._first[name]): torch.empty_like(self._first[name]).copy_(total / len(self.infos))
            for name, total in self._sums.items()
        }
        return {name: made.get(id(value), value) for name, value in self._first.items()}


def _averaged_names(weights: Weights) -> Iterator[str]:
    """Yields the names of floating-point and complex tensors, each tied tensor once."""
    yielded = set()
    for name, value in weights.items():
        is_number = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        if is_number and id(value) not in yielded:
            yielded.add(id(value))
            yield name


def _to_64_bit(tensor: Tensor) -> Tensor:
    """Returns a 64-bit copy; always a copy, because it is added to in place."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def tied_names(weights: Weights) -> dict[str, str]:
    """Returns the later names of each tied tensor, with the first name of that tensor."""
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(value), name) for name, value in weights.items() if _is_tensor(value)}
    return {name: of for name, of in names.items() if name != of}


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _require_alike(first: Manifest, weights: Weights, info: Manifest, others: Weights) -> None:
    if wrong := _difference(weights, others):
        raise CheckpointError(
            f"the checkpoints {first.id} (step {first.step}) and {info.id} (step {info.step}) hold "
            f"different weights, which have no mean: {wrong}",
            fix="average fewer of them, or export one: -c ID",
        )


def _difference(weights: Weights, others: Weights) -> str:
    """Describes the first difference in names, shapes, types or ties; empty if there is none."""
    if missing := [*(weights.keys() - others.keys()), *(others.keys() - weights.keys())]:
        return f"{', '.join(sorted(missing)[:3])} {'is' if len(missing) == 1 else 'are'} in only one of them"
    for name, value in weights.items():
        one, other = _tensor_form(value), _tensor_form(others[name])
        if one != other:
            return f"{name} is {one} in one and {other} in the other"
    if tied_names(weights) != tied_names(others):
        return "they tie different weights"
    return ""


def _tensor_form(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return "no tensor"
