"""Checks that model, data and optimizers are the same on every rank; the errors name what differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy

from roost.base.errors import ContractError, PeerLost
from roost.base.text.word_list import join_names
from roost.train.data.batches import Batches
from roost.train.distributed.ranks import Ranks
from roost.train.optim.optimizer import Optim

_NUMBERS = (int, float, bool)


def require_same_model(module: nn.Module, ranks: Ranks) -> None:
    """Makes sure that all ranks built the same model: names, shapes, dtypes and ``requires_grad``.

    Raises:
        ContractError: The models differ (raised on rank 0), or a parameter has no shape yet.
        PeerLost: The models differ (raised on the other ranks).
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    if lazy := [name for name, one in named if is_lazy(one)]:
        raise ContractError(
            f"{join_names(lazy)} have no shape before the first batch, and ranks must begin with the same "
            "weights",
            fix="give the sizes (Linear in place of LazyLinear), or train in one process",
        )
    own = [
        f"{name} {tuple(one.shape)} {one.dtype}{'' if one.requires_grad else ', frozen'}"
        for name, one in named
    ]
    _require_equal({"a model": own}, ranks)


def require_same_training(
    module: nn.Module, loaders: Mapping[str, Batches], optimizers: Mapping[str, Optim], ranks: Ranks
) -> None:
    """Makes sure that all ranks have the same sets, order of samples and optimizers.

    Raises:
        ContractError: They differ (raised on rank 0).
        PeerLost: They differ (raised on the other ranks).
    """
    own = {f"{name}: a set": [f"{len(one)} batches"] for name, one in loaders.items() if one.has_indices}
    train = loaders["train"]
    if train.has_indices:
        own["train: an order of samples"] = [str(train.sample_indices(0, 0, min(8, len(train))))]
    names = {id(one): name for name, one in module.named_parameters()}
    for name, optim in optimizers.items():
        own[f"optimizers.{name}: parameters or settings"] = [
            f"{[names.get(id(one), '?') for one in group['params']]} "
            f"{sorted((key, repr(value)) for key, value in group.items() if key != 'params')}"
            for group in optim.optimizer.param_groups
        ]
    _require_equal(own, ranks)


def optimizer_options_digest(optims: Iterable[Optim]) -> int:
    """A hash of all plain numbers in the optimizers' options, cheap enough to be sent in every step. Tensors
    are left out, because reading one would synchronize with the device."""
    values = [
        value
        for optim in optims
        for group in optim.optimizer.param_groups
        for value in group.values()
        if type(value) in _NUMBERS or (type(value) is tuple and all(type(one) in _NUMBERS for one in value))
    ]
    # NaN has another hash each time.
    return hash(tuple(0 if value != value else value for value in values))


def raise_options_differ(optimizers: Mapping[str, Optim], ranks: Ranks, *, step: int) -> None:
    """Raises an error that names the optimizer options in which the ranks differ; all ranks must call this
    before step ``step``.

    Raises:
        ContractError: Always, on every rank.
    """
    own = {
        f"optimizers.{name}": [
            f"{key} {value!r}"
            for group in optim.optimizer.param_groups
            for key, value in sorted(group.items())
            if key != "params"
        ]
        for name, optim in optimizers.items()
    }
    difference = _find_difference(own, ranks)
    raise ContractError(
        f"step {step}: "
        f"{difference.description() if difference else 'the optimizers have other options on some ranks'}",
        fix="change learning rates and options on every rank alike, and do not decide it by what only one "
        "rank knows (its rank, a file, a clock)",
    )


class _RankDifference(NamedTuple):
    """The first difference between a rank and rank 0."""

    rank: int
    what: str
    on_main: str
    """The value on rank 0."""
    on_rank: str
    """The value on ``rank``."""

    def description(self) -> str:
        return f"rank {self.rank} has {self.what} of its own: {self.on_rank} where rank 0 has {self.on_main}"


def _require_equal(own: Mapping[str, Sequence[str]], ranks: Ranks) -> None:
    difference = _find_difference(own, ranks)
    if difference is not None and not ranks.is_main:
        raise PeerLost(f"rank {difference.rank} has {difference.what} of its own")
    if difference is not None:
        raise ContractError(
            difference.description(),
            fix="make the project build the same on every rank; it must not depend on RANK, the time or the "
            "order of a Python set",
        )


def _find_difference(own: Mapping[str, Sequence[str]], ranks: Ranks) -> _RankDifference | None:
    first, *others = ranks.control.gather(own, "the comparison of the ranks")
    for rank, other in enumerate(others, 1):
        for what in {**first, **other}:
            if other.get(what) != first.get(what):
                return _RankDifference(
                    rank, what, *_first_difference(first.get(what, ()), other.get(what, ()))
                )
    return None


def _first_difference(first: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    pairs = itertools.zip_longest(first, other, fillvalue="nothing")
    return next((here, there) for here, there in pairs if here != there)
