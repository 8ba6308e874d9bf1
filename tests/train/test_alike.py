from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import ContractError, PeerLost
from roost.train.alike import digest_of_options, require_model, require_training
from roost.train.data.loader import Loader
from roost.train.optim import Optim
from roost.train.plans.plan import BatchPlan
from roost.train.plans.shares import Shared
from roost.train.ranks import Ranks
from roost.train.stepper import Stepper
from roost.train.trainer import Trainer
from tests.train.parts import MLP, Still, built
from tests.train.team import team


def said(work: Callable[[Ranks], None]) -> list[str]:
    """What two ranks are told."""

    def told(ranks: Ranks) -> str:
        try:
            work(ranks)
        except (ContractError, PeerLost) as error:
            return f"{type(error).__name__}: {error.message}"
        return ""

    return team(2, told)


def frozen(module: nn.Linear) -> nn.Linear:
    module.bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: nn.Linear(2, 3), ""),
        (lambda: nn.Linear(3, 2), "weight (2, 3) torch.float32 where rank 0 has weight (3, 2) torch.float32"),
        (lambda: nn.Linear(2, 3, bias=False), "nothing where rank 0 has bias (3,) torch.float32"),
        (lambda: frozen(nn.Linear(2, 3)), "bias (3,) torch.float32, frozen where rank 0 has bias"),
        (lambda: nn.Linear(2, 3).double(), "weight (3, 2) torch.float64 where rank 0 has weight"),
    ],
)
def test_models_that_differ(other: Callable[[], nn.Module], difference: str) -> None:
    first, second = said(lambda ranks: require_model(nn.Linear(2, 3) if ranks.is_main else other(), ranks))
    if difference:
        assert first.startswith(f"ContractError: rank 1 has a model of its own: {difference}")
        assert second == "PeerLost: rank 1 has a model of its own"
    else:
        assert first == second == ""


def test_a_model_that_has_no_shape_yet() -> None:
    def lazy(ranks: Ranks) -> None:
        require_model(nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()), ranks)

    for each in said(lazy):
        assert each.startswith("ContractError: 0.weight, 0.bias, ") and "before the first batch" in each


def trainer(ranks: Ranks, *, lr: float = 0.1, backwards: bool = False, **plan: Any) -> Trainer:
    runner = built(MLP)
    parameters = list(runner.parameters())
    optimizer = torch.optim.SGD(parameters[::-1] if backwards else parameters, lr=lr)
    whole = BatchPlan(plan.pop("size", 26), 4, **plan)
    train = Loader(Still(), plan=Shared(whole, ranks.rank, ranks.world))
    return Trainer(runner, {"train": train}, Stepper(optimizer, ranks=ranks), until=3, ranks=ranks)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({}, ""),
        ({"lr": 0.2}, "optimizers.main: parameters or settings"),
        ({"backwards": True}, "optimizers.main: parameters or settings"),
        ({"size": 20}, "train: a set"),
        ({"seed": 1}, "train: an order of samples"),
    ],
    ids=str,
)
def test_data_and_optimizers_that_differ(other: dict[str, Any], what: str) -> None:
    def work(ranks: Ranks) -> None:
        require_training(trainer(ranks, **(other if ranks.rank else {})))

    first, second = said(work)
    assert first.startswith(f"ContractError: rank 1 has {what} of its own: ") if what else not first
    assert second == (f"PeerLost: rank 1 has {what} of its own" if what else "")


def test_the_digest_of_options_is_that_of_all_plain_numbers() -> None:
    """Those of tensors would have to be waited for."""

    def digest(**options: Any) -> int:
        optimizer = torch.optim.Adam([{"params": [torch.zeros(1)], "lr_scale": 1.0, **options}])
        return digest_of_options([Optim(torch.optim.SGD([torch.zeros(1)], lr=0.1)), Optim(optimizer)])

    nan = float("nan")
    assert digest() == digest() and digest(lr=nan) == digest(lr=-nan)
    assert digest(lr=torch.tensor(0.1), capturable=True) == digest(lr=torch.tensor(0.2), capturable=True)
    others = [digest(), digest(lr=0.2), digest(betas=(0.9, 0.99)), digest(lr_scale=2.0), digest(amsgrad=True)]
    assert len(set(others)) == len(others)
