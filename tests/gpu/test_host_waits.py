"""What a step costs the host of a card: how many kernels it launches, and that it waits for none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from roost.train.distributed import sharded_tensors
from roost.train.optim.optimizer import Optim
from roost.train.step.nonfinite_check import NonfiniteGuard
from tests.gpu.device import DEVICE, REHEARSES

pytestmark = pytest.mark.needs_gpu


@contextmanager
def no_waits() -> Iterator[None]:
    """Torch raises inside where the host would wait for the card."""
    if REHEARSES:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_guard_of_a_resnet_launches_few_kernels() -> None:
    """Its 53 normalisations have 159 buffers; three kernels for each would be most of a step's launches."""
    guard = NonfiniteGuard(nn.ModuleList(nn.BatchNorm2d(256) for _ in range(53)).to(DEVICE))
    loss = torch.tensor(1.0, device=DEVICE)
    guard.begin()
    activity = torch.profiler.ProfilerActivity
    kinds = [activity.CPU] if REHEARSES else [activity.CPU, activity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        guard.begin()
        guard.check(loss, [])
        if not REHEARSES:
            torch.cuda.synchronize()
    launches = [event for event in profile.events() if "LaunchKernel" in event.name]
    assert len(launches) <= 40
    assert REHEARSES or len(launches) >= 5, "the profiler saw them"


def test_the_guard_never_waits() -> None:
    module = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3)).to(DEVICE)
    guard, loss = NonfiniteGuard(module), torch.tensor(1.0, device=DEVICE)
    guard.begin()
    with no_waits():
        guard.begin()
        guard.check(loss, [loss, loss])


def test_a_loaded_nadam_reads_its_products_on_the_host() -> None:
    saved_module, module = nn.Linear(8, 8).to(DEVICE), nn.Linear(8, 8).to(DEVICE)
    saved, optim = (Optim(torch.optim.NAdam(one.parameters(), lr=0.1)) for one in (saved_module, module))
    for one in (saved_module, module):
        one(torch.ones(2, 8, device=DEVICE)).sum().backward()
    saved.take_step()
    optim.load_state_dict(saved.state_dict())
    with no_waits():
        optim.take_step()
    assert {state["mu_product"].device.type for state in optim.optimizer.state.values()} == {"cpu"}


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo" if REHEARSES else "nccl", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_norm_of_sharded_gradients_never_waits(one_rank: None) -> None:
    """One rank of NCCL: each step of FSDP with clipping computes it. One tensor of the list is whole."""
    mesh = init_device_mesh(DEVICE, (1,))
    whole = [torch.randn(4, 4, device=DEVICE) for _ in range(3)]
    tensors = [distribute_tensor(one, mesh, [Shard(0)]) for one in whole]
    for given in (tensors, [*tensors[:2], whole[2]]):
        sharded_tensors.total_norm(given, 2.0)  # the first one connects
        with no_waits():
            norm = sharded_tensors.total_norm(given, 2.0)
            most = sharded_tensors.total_norm(given, float("inf"))
        expected = torch.nn.utils.get_total_norm(whole)
        assert torch.allclose(norm, expected) and float(most) == max(float(one.abs().max()) for one in whole)
