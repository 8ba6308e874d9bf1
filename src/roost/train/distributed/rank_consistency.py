"""What must be the same on every rank before the first step, and is told where it is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy

from roost.base.errors import ContractError, PeerLost
from roost.base.text.word_list import join_names
from roost.train.distributed.ranks import Ranks
from roost.train.optim.optimizer import Optim

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_NUMBERS = (int, float, bool)


def require_same_model(module: nn.Module, ranks: Ranks) -> None:
    """Makes sure that all ranks have built one model: names, shapes, types, and what is trained.

    Raises:
        ContractError: They have not, or some of it has no shape yet.
        PeerLost: They have not, on the ranks but rank 0.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    if lazy := [name for name, one in named if is_lazy(one)]:
        raise ContractError(
            f"{join_names(lazy)} have no shape before the first batch, and ranks must begin with the same values",
            fix="give the sizes: Linear in place of LazyLinear; or train in one process",
        )
    own = [
        f"{name} {tuple(one.shape)} {one.dtype}{'' if one.requires_grad else ', frozen'}"
        for name, one in named
    ]
    _require_equal({"a model": own}, ranks)


def require_same_training(trainer: Trainer) -> None:
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
        own["train: an order of samples"] = [str(train.sample_indices(0, 0, min(8, len(train))))]
    names = {id(one): name for name, one in trainer.runner.named_parameters()}
    for name, optim in trainer.stepper.optimizers.items():
        own[f"optimizers.{name}: parameters or settings"] = [
            f"{[names.get(id(one), '?') for one in group['params']]} "
            f"{sorted((key, repr(value)) for key, value in group.items() if key != 'params')}"
            for group in optim.optimizer.param_groups
        ]
    _require_equal(own, trainer.ranks)


def optimizer_options_digest(optims: Iterable[Optim]) -> int:
    """Of all plain numbers that optimizers move by, as each rank can tell the others in every step. What is a
    tensor would have to be waited for."""
    values = [
        value
        for optim in optims
        for group in optim.optimizer.param_groups
        for value in group.values()
        if type(value) in _NUMBERS or (type(value) is tuple and all(type(one) in _NUMBERS for one in value))
    ]
    # NaN has another hash each time.
    return hash(tuple(0 if value != value else value for value in values))


def raise_options_differ(trainer: Trainer) -> None:
    """Tells in what the optimizers of the ranks differ; all must call this.

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
        for name, optim in trainer.stepper.optimizers.items()
    }
    unlike = _find_difference(own, trainer.ranks)
    raise ContractError(
        f"step {trainer.progress.step + 1}: "
        f"{unlike.told() if unlike else 'optimizers had other options on some ranks than on others'}",
        fix="change learning rates and options on every rank alike, by nothing that one alone knows: its "
        "number, a file, a clock",
    )


class _RankDifference(NamedTuple):
    """What a rank has otherwise than rank 0."""

    rank: int
    what: str
    here: str
    """On rank 0."""
    there: str

    def told(self) -> str:
        return f"rank {self.rank} has {self.what} of its own: {self.there} where rank 0 has {self.here}"


def _require_equal(own: Mapping[str, Sequence[str]], ranks: Ranks) -> None:
    unlike = _find_difference(own, ranks)
    if unlike is not None and not ranks.is_main:
        raise PeerLost(f"rank {unlike.rank} has {unlike.what} of its own")
    if unlike is not None:
        raise ContractError(
            unlike.told(),
            fix="let the project build the same on every rank; it must not depend on RANK, on time or on the "
            "order of a set of Python",
        )


def _find_difference(own: Mapping[str, Sequence[str]], ranks: Ranks) -> _RankDifference | None:
    first, *others = ranks.control.gather(own, "a comparison of what the ranks have")
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
