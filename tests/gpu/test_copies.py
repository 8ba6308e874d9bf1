"""A checkpoint is copied while the card computes, and holds the state from before the next step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from roost.train.checkpointing.staging import Staging
from tests.gpu.device import DEVICE, REHEARSES

pytestmark = pytest.mark.needs_gpu
ELEMENTS = 2**14 if REHEARSES else 2**25
"""Of each of four tensors: 512 MB."""
ROUNDS = 3 if REHEARSES else 100


def state() -> list[Tensor]:
    return [torch.zeros(ELEMENTS, device=DEVICE) for _ in range(4)]


def torn_rounds(*, waits: bool) -> int:
    """How many of the saves, one at each step, hold a value of another step."""
    tensors, staging, torn = state(), Staging(), 0
    work = torch.randn(2048, 2048, device=DEVICE) if not REHEARSES else torch.randn(8, 8)
    for step in range(ROUNDS):
        staging.begin(defer=tensors[:3])
        leaves = [staging.leaf(one) for one in tensors]
        staging.start_gpu_copies()
        staging.copy_deferred()
        work = (work @ work).clamp(-1, 1)  # forward and backward, beside the copies
        if waits:
            staging.order_after_copies()
        for one in tensors:
            one.add_(1)  # the optimizer
        staging.wait()
        values = [np.frombuffer(leaf.data, dtype=np.float32) for leaf in leaves]
        torn += any(found.min() != step or found.max() != step for found in values)
    return torn


def test_no_save_is_torn() -> None:
    assert torn_rounds(waits=True) == 0


@pytest.mark.skipif(REHEARSES, reason="a copy on the CPU is done when the call returns")
def test_without_the_order_saves_are_torn() -> None:
    """So the test above can fail."""
    assert torn_rounds(waits=False) > 0


def test_pinned_memory_is_as_much_as_the_state_and_little_more() -> None:
    """Torch's host allocator takes powers of two: what a tensor leaves of its block, the next ones use."""
    sizes = [9, 3, 3, 1] if REHEARSES else [72 << 20, 24 << 20, 24 << 20, 8 << 20]
    tensors, staging = [torch.zeros(size, dtype=torch.uint8, device=DEVICE) for size in sizes], Staging()
    staging.begin()
    for one in tensors:
        staging.leaf(one)
    staging.start_gpu_copies()
    staging.wait()
    held = sum(len(block) for memory in staging._pinned.values() for block in memory._blocks)
    assert held <= 1.1 * sum(sizes)
