from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import ContractError, PeerLost
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.distributed.rank_consistency import (
    optimizer_options_digest,
    require_same_model,
    require_same_training,
)
from roost.train.distributed.ranks import Ranks
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Still, built
from tests.train.team import team


def said(work: Callable[[Ranks], None]) -> list[str]:
    """The errors of two ranks."""

    def raised(ranks: Ranks) -> str:
        try:
            work(ranks)
        except (ContractError, PeerLost) as error:
            return f"{type(error).__name__}: {error.message}"
        return ""

    return team(2, raised)


def frozen(module: nn.Linear) -> nn.Linear:
    module.bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: nn.Linear(2, 3), ()),
        (lambda: nn.Linear(3, 2), ("weight (2, 3) torch.float32", "weight (3, 2) torch.float32")),
        (lambda: nn.Linear(2, 3, bias=False), ("bias (3,) torch.float32",)),
        (lambda: frozen(nn.Linear(2, 3)), ("bias (3,) torch.float32, frozen",)),
        (lambda: nn.Linear(2, 3).double(), ("weight (3, 2) torch.float64", "weight (3, 2) torch.float32")),
    ],
)
def test_models_that_differ(
    other: Callable[[], nn.Module], difference: tuple[str, ...], messages: Messages
) -> None:
    first, second = said(
        lambda ranks: require_same_model(nn.Linear(2, 3) if ranks.is_main else other(), ranks)
    )
    if difference:
        assert first.startswith("ContractError: ") and "rank 1" in first
        assert all(one in first for one in difference)
        assert second.startswith("PeerLost: ") and "rank 1" in second
        messages.check(first)
        messages.check(second)
    else:
        assert first == second == ""


def test_a_model_that_has_no_shape_yet(messages: Messages) -> None:
    def lazy(ranks: Ranks) -> None:
        require_same_model(nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()), ranks)

    for each in said(lazy):
        assert each.startswith("ContractError: ") and "0.weight, 0.bias" in each
        messages.check(each)


def trainer(ranks: Ranks, *, lr: float = 0.1, backwards: bool = False, **plan: Any) -> Trainer:
    runner = built(MLP)
    parameters = list(runner.parameters())
    optimizer = torch.optim.SGD(parameters[::-1] if backwards else parameters, lr=lr)
    whole = BatchPlan(plan.pop("size", 26), 4, **plan)
    train = Loader(Still(), plan=ShardedPlan(whole, ranks.rank, ranks.world_size))
    return Trainer(runner, {"train": train}, Stepper(optimizer, ranks=ranks), until=3, ranks=ranks)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({}, ""),
        ({"lr": 0.2}, "optimizers.main"),
        ({"backwards": True}, "optimizers.main"),
        ({"size": 20}, "train"),
        ({"seed": 1}, "train"),
    ],
    ids=str,
)
def test_data_and_optimizers_that_differ(other: dict[str, Any], what: str, messages: Messages) -> None:
    def work(ranks: Ranks) -> None:
        one = trainer(ranks, **(other if ranks.rank else {}))
        require_same_training(one.runner, one.loaders, one.stepper.optimizers, ranks)

    first, second = said(work)
    if not what:
        assert first == second == ""
        return
    for kind, raised in ("ContractError", first), ("PeerLost", second):
        assert raised.startswith(f"{kind}: ") and "rank 1" in raised and what in raised
        messages.check(raised.partition("[")[0])


def test_the_digest_of_options_is_that_of_all_plain_numbers() -> None:
    """Those of tensors would have to be waited for."""

    def digest(**options: Any) -> int:
        optimizer = torch.optim.Adam([{"params": [torch.zeros(1)], "lr_scale": 1.0, **options}])
        return optimizer_options_digest([Optim(torch.optim.SGD([torch.zeros(1)], lr=0.1)), Optim(optimizer)])

    nan = float("nan")
    assert digest() == digest() and digest(lr=nan) == digest(lr=-nan)
    assert digest(lr=torch.tensor(0.1), capturable=True) == digest(lr=torch.tensor(0.2), capturable=True)
    others = [digest(), digest(lr=0.2), digest(betas=(0.9, 0.99)), digest(lr_scale=2.0), digest(amsgrad=True)]
    assert len(set(others)) == len(others)
