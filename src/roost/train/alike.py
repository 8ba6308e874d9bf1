"""What must be the same on every rank before the first step, and is told where it is not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from roost.base.errors import ContractError, PeerLost
from roost.train.ranks import Ranks

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def require_model(module: nn.Module, ranks: Ranks) -> None:
    """Makes sure that all ranks have built one model: names, shapes, types, and what is trained.

    Raises:
        ContractError: They have not.
        PeerLost: Likewise, on the ranks but rank 0.
    """
    own = [
        f"{name} {tuple(one.shape)} {one.dtype}{'' if one.requires_grad else ', frozen'}"
        for name, one in [*module.named_parameters(), *module.named_buffers()]
    ]
    _require({"a model": own}, ranks)


def require_training(trainer: Trainer) -> None:
    """Makes sure that all ranks have the same data and optimizers before them.

    Raises:
        ContractError: They have not.
        PeerLost: Likewise, on the ranks but rank 0.
    """
    own = {
        f"{name}: a set": [f"{len(one)} batches"] for name, one in trainer.loaders.items() if one.has_indices
    }
    train = trainer.loaders["train"]
    if train.has_indices:
        own["train: an order of samples"] = [str(train.samples(0, 0, min(8, len(train))))]
    names = {id(one): name for name, one in trainer.runner.named_parameters()}
    for name, optim in trainer.stepper.optimizers.items():
        own[f"optimizers.{name}: parameters or settings"] = [
            f"{[names.get(id(one), '?') for one in group['params']]} "
            f"{sorted((key, repr(value)) for key, value in group.items() if key != 'params')}"
            for group in optim.optimizer.param_groups
        ]
    _require(own, trainer.ranks)


def _require(own: Mapping[str, Sequence[str]], ranks: Ranks) -> None:
    first, *others = ranks.control.gather(own)
    for rank, other in enumerate(others, 1):
        for what in {**first, **other}:
            if other.get(what) != first.get(what):
                if not ranks.is_main:
                    raise PeerLost(f"rank {rank} has {what} of its own")
                here, there = _first_difference(first.get(what, ()), other.get(what, ()))
                raise ContractError(
                    f"rank {rank} has {what} of its own: {there} where rank 0 has {here}",
                    fix="let the project build the same on every rank; it must not depend on RANK, on time "
                    "or on the order of a set of Python",
                )


def _first_difference(first: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    pairs = itertools.zip_longest(first, other, fillvalue="nothing")
    return next((here, there) for here, there in pairs if here != there)
