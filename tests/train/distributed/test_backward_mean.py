from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base.errors import ContractError, PeerLost
from roost.train.distributed.backward_mean import BackwardMean
from roost.train.distributed.ranks import Ranks
from tests.train.parts import bits
from tests.train.team import team


def net(rank: int = 0) -> nn.ModuleList:
    torch.manual_seed(rank)
    return nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])


def batch(rank: int, number: int = 0) -> Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * number + rank))


def loss(layers: Any, x: Tensor) -> Tensor:
    return layers[1](torch.tanh(layers[0](x))).square().mean()


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [one.grad for one in module.parameters()]


def require_mean(found: list[list[Tensor]], *batches: list[Tensor]) -> None:
    """Requires the same gradients on both ranks: in one process, the sums over the passes of each rank's
    batches, averaged over the ranks."""
    first, second = found
    assert bits(first) == bits(second)
    every = []
    for ones in batches:
        alone = net()
        for one in ones:
            loss(alone, one).backward()
        every.append([one.grad for one in alone.parameters()])
    for mine, ranks in zip(first, zip(*every, strict=True), strict=True):
        torch.testing.assert_close(mine, torch.stack(list(ranks)).mean(0))  # type: ignore[arg-type]


def begun(ranks: Ranks, *modules: nn.Module) -> BackwardMean:
    found = BackwardMean(ranks)
    for module in modules:
        found.add(module)
    found.refresh()
    return found


def test_gradients_are_the_mean_however_the_module_is_called() -> None:
    def work(ranks: Ranks) -> list[Any]:
        layers = net(ranks.rank)
        begun(ranks, layers)
        loss(layers, batch(ranks.rank)).backward()
        return gradients(layers)

    require_mean(team(2, work), [batch(0)], [batch(1)])


def test_gradients_of_several_passes_accumulate() -> None:
    def work(ranks: Ranks) -> list[Any]:
        layers = net()
        begun(ranks, layers)
        for number in range(3):
            loss(layers, batch(ranks.rank, number)).backward()
        return gradients(layers)

    require_mean(team(2, work), *[[batch(rank, number) for number in range(3)] for rank in range(2)])


def test_a_parameter_that_one_rank_does_not_use_and_one_that_none_uses() -> None:
    def work(ranks: Ranks) -> list[Any]:
        layers = net()
        layers.append(nn.Linear(1, 1))
        begun(ranks, layers)
        x = batch(ranks.rank)
        (layers[1](x) if ranks.rank else layers[1](layers[0](x))).sum().backward()
        return gradients(layers)

    first, second = team(2, work)
    assert bits(first[:4]) == bits(second[:4]) and first[4:] == second[4:] == [None, None]


def test_two_modules_in_one_pass_and_one_alone() -> None:
    """As a generator and a discriminator; one holds a part of the other, too."""

    def work(ranks: Ranks) -> list[Any]:
        first, second = net(), net(1)
        begun(ranks, first, second, second[0])
        x = batch(ranks.rank)
        loss(second, first[0](x)).backward()
        loss(second, x).backward()
        return [*gradients(first), *gradients(second)]

    first, second = team(2, work)
    assert bits([one for one in first if one is not None]) == bits([one for one in second if one is not None])
    assert first[2:4] == [None, None] and first[4] is not None


def test_a_parameter_that_is_trained_later() -> None:
    def work(ranks: Ranks) -> list[Any]:
        layers = net()
        layers[0].requires_grad_(False)
        means = begun(ranks, layers)
        loss(layers, batch(ranks.rank)).backward()
        layers.requires_grad_(True)
        means.refresh()
        layers.zero_grad()
        loss(layers, batch(ranks.rank)).backward()
        return gradients(layers)

    require_mean(team(2, work), [batch(0)], [batch(1)])


def test_a_pass_within_a_pass() -> None:
    def work(ranks: Ranks) -> list[Any]:
        layers = net()
        begun(ranks, layers)
        x = batch(ranks.rank).requires_grad_()
        inner = torch.utils.checkpoint.checkpoint(layers[0], x, use_reentrant=True)
        layers[1](torch.tanh(inner)).square().mean().backward()
        return gradients(layers)

    require_mean(team(2, work), [batch(0)], [batch(1)])


def test_a_pass_that_failed_does_not_disturb_the_next() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise ValueError("in backward")

    def work(ranks: Ranks) -> list[Any]:
        layers = net()
        begun(ranks, layers)
        try:
            layers[1](Bad.apply(layers[0](batch(ranks.rank)))).sum().backward()
        except ValueError:
            layers.zero_grad()
        loss(layers, batch(ranks.rank)).backward()
        return gradients(layers)

    require_mean(team(2, work), [batch(0)], [batch(1)])


def test_weights_and_buffers_are_those_of_rank_0() -> None:
    def work(ranks: Ranks) -> list[Any]:
        torch.manual_seed(ranks.rank)
        module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        means = begun(ranks, module)
        module(batch(ranks.rank)).sum().backward()
        means.synchronize_buffers()
        return list(module.state_dict().values())

    first, second = team(2, work)
    assert bits(first) == bits(second)


def test_ranks_with_different_modules() -> None:
    def work(ranks: Ranks) -> str:
        with pytest.raises((ContractError, PeerLost)) as refused:
            begun(ranks, nn.Linear(2, 2 + ranks.rank))
        return f"{type(refused.value).__name__}: {refused.value}"

    first, second = team(2, work)
    assert first.startswith("ContractError") and "weight (2, 2)" in first and "weight (3, 2)" in first
    assert second.startswith("PeerLost")
