from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roost.train.distributed.control_channel import ControlChannel
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.replicas import BufferSync, broadcast_module, broadcast_tensors
from tests.train.parts import bits
from tests.train.team import team


def test_tensors_of_any_type_are_those_of_rank_0() -> None:
    def work(ranks: Ranks) -> list[Tensor]:
        own = [
            torch.full((3, 2), ranks.rank + 0.5),
            torch.tensor([ranks.rank == 0, True]),
            torch.tensor(7 - ranks.rank),
            torch.full((2, 2), ranks.rank + 1, dtype=torch.complex128),
            torch.arange(6.0).reshape(2, 3).t() + ranks.rank,
            torch.empty(0),
        ]
        broadcast_tensors(own, ranks, "the test")
        return own

    first, *others = team(3, work)
    assert first[0].eq(0.5).all() and first[2] == 7
    assert all(bits(other) == bits(first) for other in others)


def test_what_lies_on_the_cpu_of_ranks_on_gpus_is_spread_too() -> None:
    """NCCL takes nothing from the CPU; neither does the group used in its place here, without an error."""

    def work(ranks: Ranks) -> list[Tensor]:
        control = dist.group.WORLD  # gloo, as the ranks on GPUs have it beside NCCL
        import torch.testing._internal.distributed.fake_pg

        dist.distributed_c10d._update_default_pg(dist.new_group(backend="fake"))
        own = [torch.full((3,), float(ranks.rank)), torch.tensor([ranks.rank])]
        broadcast_tensors(
            own, replace(ranks, control=ControlChannel(ranks.rank, ranks.world_size, control)), "the test"
        )
        return own

    first, second = team(2, work)
    assert first[0].eq(0).all() and bits(first) == bits(second)


def test_a_module_begins_alike_and_its_buffers_follow_rank_0() -> None:
    class Net(nn.Module):
        def __init__(self, rank: int) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.register_buffer("own", torch.tensor(rank), persistent=False)

    def work(ranks: Ranks) -> tuple[list[Tensor], int]:
        torch.manual_seed(ranks.rank)
        net = Net(ranks.rank)
        with torch.no_grad():
            net.norm.weight.uniform_()
        broadcast_module(net, ranks)
        buffers = BufferSync(net, ranks)
        net.own = torch.tensor(ranks.rank)
        net.norm(torch.randn(4, 2))
        buffers.synchronize()
        return list(net.state_dict().values()), int(net.own)

    first, second = team(2, work)
    assert bits(first[0]) == bits(second[0])
    assert (first[1], second[1]) == (0, 1)  # what a state_dict leaves out is each rank's own
