"""Tensors of which each rank holds some rows, beside whole ones with the same values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed.tensor  # here, so that no forked rank imports it by itself
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from roost.base import state_tree
from roost.base.errors import CheckpointError
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.sharded_tensors import (
    any_sharded,
    full_tensor,
    is_sharded,
    local_shard,
    norms,
    shard_like,
    total_norm,
)
from tests.messages import Messages
from tests.train.team import team

aten = torch.ops.aten


def values(rows: int) -> Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows))


def sharded(tensor: Tensor, ranks: Ranks) -> DTensor:
    return distribute_tensor(tensor, DeviceMesh("cpu", list(range(ranks.world_size))), [Shard(0)])


def test_each_rank_takes_its_rows_of_a_whole_one() -> None:
    """As torch shares them out, also where some ranks get fewer rows, or none."""

    def work(ranks: Ranks) -> None:
        for rows in (1, 2, 4, 7, 9):
            own, other = sharded(torch.zeros(rows, 3), ranks), values(rows).double()
            made = shard_like(other.t().contiguous().t(), own)  # however it lies in memory
            wanted = sharded(other, ranks)
            assert made.placements == own.placements and made.dtype == torch.float64
            assert local_shard(made).equal(local_shard(wanted)) and local_shard(made).is_contiguous()
            assert full_tensor(made).equal(other) and made.shape == other.shape
        assert shard_like(other, torch.zeros(9, 3)) is other  # beside a whole one it stays whole
        step = torch.tensor(3.0)
        assert (
            shard_like(step, own) is step
            and shard_like(made, own) is made
            and shard_like("text", own) == "text"
        )
        local_shard(own)[:1] = 5.0
        assert not len(local_shard(own)) or local_shard(own)[0, 0] == 5.0, "the same memory"

    team(3, work)


def test_norms_are_those_of_all_rows() -> None:
    def work(ranks: Ranks) -> None:
        every = [values(rows) for rows in (1, 7, 2)] + [torch.tensor([3.0, -4.0])]
        mixed = [sharded(one, ranks) for one in every[:3]] + every[3:]
        assert any_sharded(mixed) and not any_sharded(every) and not is_sharded(mixed[3])
        for kind in (1.0, 2.0, math.inf):
            torch.testing.assert_close(total_norm(mixed, kind), torch.nn.utils.get_total_norm(every, kind))
            for found, one in zip(norms(mixed, kind), every, strict=True):
                torch.testing.assert_close(found.float(), torch.linalg.vector_norm(one, kind))
        for bad in (math.nan, math.inf):
            every[1][6, 0] = bad  # a row of the last rank
            mixed[1] = sharded(every[1], ranks)
            assert all(not total_norm(mixed, kind).isfinite() for kind in (2.0, math.inf))
            assert [one.isfinite().item() for one in norms(mixed, math.inf)] == [True, False, True, True]

    team(3, work)


class HostIndices(TorchDispatchMode):
    """Collects what takes an index or a mask from the host: on a GPU a copy that waits, in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (aten.index, aten.index_put_, aten.index_put, aten.lift_fresh):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_norm_copies_nothing_from_the_host() -> None:
    def run(ranks: Ranks) -> object:
        whole = values(4)
        for tensors in ([sharded(whole, ranks)] * 2, [sharded(whole, ranks), whole]):
            with HostIndices() as seen:
                total_norm(tensors, 2.0)
                total_norm(tensors, math.inf)
            assert seen.found == []
        with HostIndices() as seen:
            whole[[0, 1]] = torch.tensor([1.0, 2.0]).unsqueeze(1)
        return seen.found

    assert all(team(2, run)), "it would be seen"


def test_a_state_distinguishes_shards_from_whole_tensors(messages: Messages) -> None:
    def work(ranks: Ranks) -> str:
        own = sharded(values(7), ranks)
        alike = DTensor.from_local(values(2), own.device_mesh, [Replicate()])
        skeleton, leaves = state_tree.pack(
            {"shard": own, "tied": own.detach(), "same": alike, "plain": values(1)}
        )
        assert {name: leaf.is_shard for name, leaf in leaves.items()} == {
            "shard": True,
            "same": False,
            "plain": False,
        }
        assert skeleton["shard"] == skeleton["tied"] and skeleton["shard"]["shape"] == [7, 3]
        assert leaves["shard"].shape == tuple(local_shard(own).shape)
        columns = distribute_tensor(values(2), own.device_mesh, [Shard(1)])
        with pytest.raises(CheckpointError, match=r"'a\.b'") as refused:
            state_tree.pack({"a": {"b": columns}})
        return str(refused.value)

    first, second = team(2, work)
    assert first == second
    messages.check(first)
