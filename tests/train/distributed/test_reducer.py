from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.train.distributed import reducer
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.reducer import GradientReducer
from tests.messages import Messages
from tests.train.parts import bits
from tests.train.team import team


def parameters(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def loss_of(own: list[Tensor], rank: int) -> Tensor:
    return torch.stack([(one * (rank + 1 + place)).sum() for place, one in enumerate(own)]).sum()


@pytest.mark.parametrize("bucket_bytes", [1, 40, 1 << 20])
@pytest.mark.parametrize("world", [2, 3])
def test_each_gradient_is_the_sum_of_all_ranks(world: int, bucket_bytes: int) -> None:
    def work(ranks: Ranks) -> list[Tensor]:
        own = parameters((3, 2), (5,), (), (2, 2, 2))
        made = GradientReducer(own, bucket_bytes=bucket_bytes)
        for _ in range(3):  # the buckets are used again
            for one in own:
                one.grad = None
            made.begin()
            loss_of(own, ranks.rank).backward()
            made.finish()
        return [one.grad for one in own if one.grad is not None]

    expected = [
        torch.full(shape, float(sum(rank + 1 + place for rank in range(world))))
        for place, shape in enumerate([(3, 2), (5,), (), (2, 2, 2)])
    ]
    for found in team(world, work):
        assert bits(found) == bits(expected)


def test_a_parameter_that_a_rank_did_not_use() -> None:
    """One that no rank used has no gradient, as in one process: weight decay must leave it alone."""

    def work(ranks: Ranks) -> list[Tensor | None]:
        first, second, _ = own = parameters((2,), (3,), (4,))
        made = GradientReducer(own)
        made.begin()
        (first.sum() if ranks.rank else first.sum() + second.sum()).backward()
        made.finish()
        return [one.grad for one in own]

    for found in team(2, work):
        assert bits(found) == bits([torch.full((2,), 2.0), torch.ones(3), None])


def test_micro_batches_before_the_last_are_added_up_on_each_rank() -> None:
    def work(ranks: Ranks) -> Tensor | None:
        [own] = parameters((2,))
        made = GradientReducer([own])
        (own.sum() * 10).backward()
        made.begin()
        own.sum().backward()
        made.finish()
        return own.grad

    assert all(bits(found) == bits(torch.full((2,), 22.0)) for found in team(2, work))


def test_gradients_keep_the_layout_of_their_parameters() -> None:
    def work(ranks: Ranks) -> tuple[tuple[int, ...], list[float]]:
        own = nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
        made = GradientReducer([own])
        made.begin()
        (own * torch.arange(96.0).reshape(2, 3, 4, 4)).sum().backward()
        made.finish()
        assert own.grad is not None and own.grad.stride() == own.stride()
        return own.grad.stride(), own.grad.flatten().tolist()

    found = team(2, work)
    assert found[0] == found[1] and found[0][1] == [2.0 * one for one in range(96)]


def test_a_sparse_gradient_is_refused(messages: Messages) -> None:
    def work(ranks: Ranks) -> str:
        embedding = nn.Embedding(4, 2, sparse=True)
        made = GradientReducer(list(embedding.parameters()))
        made.begin()
        with pytest.raises(ContractError, match="sparse=False") as refused:
            embedding(torch.tensor([1])).sum().backward()
        return str(refused.value)

    first, second = team(2, work)
    assert first == second
    messages.check(first)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(4, 400))
def test_buckets_are_full_and_in_order(sizes: list[int], most: int) -> None:
    own = [torch.zeros(size) for size in sizes]
    parts = reducer._assign_buckets(own, most)
    assert list(map(id, itertools.chain(*parts))) == list(map(id, own))
    for part, following in itertools.pairwise(parts):
        assert sum(one.numel() for one in part) * 4 <= most or len(part) == 1
        assert sum(one.numel() for one in [*part, following[0]]) * 4 > most


def test_a_gradient_that_comes_in_parts_is_refused(messages: Messages) -> None:
    """As of a module in two reentrant checkpoints: what was sent lacks the second part."""

    def work(ranks: Ranks) -> str:
        layer, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
        made = GradientReducer(list(layer.parameters()))
        made.begin()
        again = functools.partial(torch.utils.checkpoint.checkpoint, layer, use_reentrant=True)
        with pytest.raises(ContractError, match="use_reentrant=False") as refused:
            again(again(x)).sum().backward()
        return str(refused.value)

    first, second = team(2, work)
    assert first == second
    messages.check(first)


def test_other_collectives_may_run_while_backward_goes_on() -> None:
    """Also where ranks use other parameters, and so would meet in another order."""

    class Talks(torch.autograd.Function):
        """As a norm over all ranks does in its backward."""

        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            total = gradient.clone()
            dist.all_reduce(total)
            return total

    def work(ranks: Ranks) -> list[Tensor | None]:
        own = parameters((3,), (40,), (5,))
        made = GradientReducer(own, group=ranks.gradients, bucket_bytes=1)
        made.begin()
        used = own[2].sum() if ranks.rank else own[1].sum() + own[2].sum()
        (Talks.apply(own[0]).sum() + used).backward()
        made.finish()
        return [one.grad for one in own]

    for found in team(2, work):
        assert bits(found) == bits([torch.full((3,), 4.0), torch.ones(40), torch.full((5,), 2.0)])
