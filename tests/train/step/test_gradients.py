"""Those of one process are tested with the stepper (test_stepper.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base.errors import ContractError, PeerLost
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.team import team

DOUBLE = torch.float64
DATA = [
    torch.randn(size, 3, generator=torch.Generator().manual_seed(size), dtype=DOUBLE) for size in (5, 3, 4)
]
"""Micro-batches of all ranks."""


def net() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 1, dtype=DOUBLE)


def window_of(ranks: Ranks, *, counted: bool = True) -> Window:
    """Every world-th row of each micro-batch."""
    window = Window()
    for batch in DATA:
        window.append(batch[ranks.rank :: ranks.world_size])
        window.num_samples.append(len(window[-1]))
    window.total = sum(map(len, DATA)) if counted else None
    return window


def gradients(ranks: Ranks, *, weighted: bool = False, counted: bool = True) -> list[Any]:
    module = net()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.0), ranks=ranks)

    def loss(batch: Tensor) -> Mapping[str, Tensor]:
        each = module(batch).squeeze(1).square()
        if not weighted:
            return {"loss": each.mean()}
        weight = batch[:, 0].abs()
        total = weight.sum()
        return {"loss": (each * weight).sum() / total, "weight": total}

    values = stepper.run(loss, window_of(ranks, counted=counted))
    return [[p.grad for p in module.parameters()], float(values["loss"]), float(values["weight"])]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"counted": False}], ids=str)
def test_of_uneven_shares_it_is_that_of_one_process(world: int, options: dict[str, bool]) -> None:
    expected, loss, weight = gradients(ALONE, **options)
    found = team(world, lambda ranks: gradients(ranks, **options))
    for own, _, _ in found:
        for one, other in zip(own, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert all(torch.equal(one, other) for one, other in zip(own, found[0][0], strict=True))
    assert sum(own_weight for _, _, own_weight in found) == pytest.approx(weight, rel=1e-12)
    mean = sum(own_loss * own_weight for _, own_loss, own_weight in found) / weight
    assert mean == pytest.approx(loss, rel=1e-12)


def test_a_stand_in_counts_nothing() -> None:
    def work(ranks: Ranks) -> list[Any]:
        module = net()
        stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.0), ranks=ranks)
        window = Window()
        window.append(DATA[0] if ranks.is_main else DATA[0][:1])
        window.num_samples, window.total = [5 if ranks.is_main else 0], 5
        values = stepper.run(lambda batch: module(batch).square().mean(), window)
        return [[p.grad for p in module.parameters()], float(values["weight"])]

    module = net()
    module(DATA[0]).square().mean().backward()
    found = team(2, work)
    assert [weight for _, weight in found] == [5.0, 0.0]
    for own, _ in found:
        for one, parameter in zip(own, module.parameters(), strict=True):
            torch.testing.assert_close(one, parameter.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("world", [1, 2])
def test_of_stand_ins_alone_the_gradient_is_zero(world: int) -> None:
    """As of a part of a window that an `update` takes by itself."""

    def work(ranks: Ranks) -> list[Any]:
        module = net()
        stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.0), ranks=ranks)
        window = Window()
        window.extend(DATA)
        window.num_samples = [0, 0, 4]
        values = stepper.run(lambda batch: module(batch).square().mean(), window[:2])
        return [[p.grad for p in module.parameters()], float(values["loss"]), float(values["weight"])]

    for own, loss, weight in team(world, work) if world > 1 else [work(ALONE)]:
        assert not any(one.any() for one in own) and loss == weight == 0


def test_where_ranks_ask_each_other_all_hear_of_a_step_that_failed(messages: Messages) -> None:
    """And the next one goes on as if it had not been."""

    def work(ranks: Ranks) -> list[Any]:
        module = net()
        stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), ranks=ranks, agrees_on_failures=True)

        def loss(batch: Tensor) -> Tensor:
            if ranks.rank == 1 and step == 1:
                raise ValueError("a bad batch")
            return module(batch).square().mean()

        said = []
        for step in range(3):  # noqa: B007  - `loss` looks at it
            try:
                stepper.run(loss, window_of(ranks))
                said.append("")
            except (ValueError, PeerLost) as error:
                assert error is stepper.gradients.agreed_error
                said.append(f"{type(error).__name__}: {error}")
        return [said, [p.detach() for p in module.parameters()]]

    first, second = team(2, work)
    assert re.fullmatch(r"PeerLost: .*rank 1\b.*ValueError: a bad batch", first[0][1])
    assert first[0][::2] == ["", ""]
    messages.check(first[0][1])
    assert second[0] == ["", "ValueError: a bad batch", ""]
    assert all(torch.equal(one, other) for one, other in zip(first[1], second[1], strict=True))


def test_two_losses_in_one_step_each_have_their_own_parameters() -> None:
    def work(ranks: Ranks) -> list[Any]:
        first, second = net(), net()
        stepper = Stepper(
            {name: torch.optim.SGD(one.parameters(), lr=0.1) for name, one in (("a", first), ("b", second))},
            ranks=ranks,
        )
        for _ in range(3):
            stepper.run(lambda batch: first(batch).square().mean(), window_of(ranks), optimizer="a")
            # Its backward goes through the first one, too, whose gradients are ignored then.
            stepper.run(lambda batch: (second(batch) * first(batch)).mean(), window_of(ranks), optimizer="b")
        return [p.detach() for one in (first, second) for p in one.parameters()]

    expected = work(ALONE)
    for own in team(3, work):
        for one, other in zip(own, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_weight_on_one_rank_alone_is_an_error_and_no_wait(messages: Messages) -> None:
    def work(ranks: Ranks) -> str:
        module = net()
        stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), ranks=ranks)

        def loss(batch: Tensor) -> dict[str, Tensor]:
            mean = module(batch).square().mean()
            return {"loss": mean, "weight": torch.tensor(3.0)} if ranks.is_main else {"loss": mean}

        with pytest.raises(ContractError) as raised:
            stepper.run(loss, window_of(ranks))
        return raised.value.message

    first, second = team(2, work)
    assert first == second and re.search(r"loss\(\).*weight.*rank 0\b.*rank 1\b", first)
    messages.check(first)


def test_a_step_without_weight_has_no_gradient() -> None:
    def work(ranks: Ranks) -> bool:
        module = net()
        stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), ranks=ranks)
        stepper.run(
            lambda batch: {"loss": module(batch).square().mean(), "weight": torch.zeros(())}, window_of(ranks)
        )
        return all(bool((p.grad == 0).all()) for p in module.parameters() if p.grad is not None)

    assert team(2, work) == [True, True]
