"""Batches that a thread pins while the card computes arrive there as the loader workers made them."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from roost.project.contract import move_to_device
from roost.train.accelerators.registry import accelerator_of
from roost.train.checkpointing import staging as staging_module
from roost.train.checkpointing.staging import Staging
from tests.gpu.device import DEVICE, REHEARSES
from tests.train.parts import loader

pytestmark = pytest.mark.needs_gpu
SIZE = 64 if REHEARSES else 1 << 18
ROUNDS = 12 if REHEARSES else 200


class Numbered(Dataset[Any]):
    """Samples of 1 MB that hold their number."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((SIZE,), float(index)), index


@pytest.mark.parametrize("num_workers", [1, 2])
def test_no_batch_is_torn_or_changed_before_it_is_copied(num_workers: int) -> None:
    """Host memory that is used again too early, or a copy that is not ordered, would show another number."""
    reader = loader(Numbered(), 8, num_workers=num_workers, pin_memory=not REHEARSES)
    work = torch.randn(8, 8, device=DEVICE) if REHEARSES else torch.randn(2048, 2048, device=DEVICE)
    wrong = []
    with closing(reader.epochs()) as batches:
        for batch in islice(batches, ROUNDS):
            assert REHEARSES or all(one.is_pinned() for one in batch.value)
            values, numbers = move_to_device(batch.value, torch.device(DEVICE))
            del batch
            work = (work @ work).clamp(-1, 1)  # the host runs ahead of the card
            wrong.append((values != numbers.unsqueeze(1)).any())
    reader.close()
    assert len(wrong) == ROUNDS and not torch.stack(wrong).any()


def test_a_copy_into_memory_that_is_not_page_locked_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the host has little memory left: the call returns when the copy is made."""
    monkeypatch.setattr(staging_module, "available_bytes", lambda: 1)
    values, staging = [torch.full((SIZE,), float(n), device=DEVICE) for n in range(64)], Staging()
    staging.begin(defer=values[::2])
    leaves = [staging.leaf(one) for one in values]
    staging.start_gpu_copies()
    staging.copy_deferred()
    staging.order_after_copies()
    for one in values:
        one.zero_()
    staging.wait()
    for number, leaf in enumerate(leaves):
        assert bytes(leaf.data) == torch.full((SIZE,), float(number)).numpy().tobytes()
    pinned = staging._pinned.values()
    assert not any(block.is_pinned() for memory in pinned for block in memory._blocks if not REHEARSES)
    assert REHEARSES or accelerator_of(DEVICE).type in staging._pinned
