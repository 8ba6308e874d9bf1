"""A copy is what the state was, whatever lies how in memory and whatever is changed afterwards."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from roost.base import state_tree
from roost.train.checkpointing.staging import Staging, StagingMemory, unpinned_memory


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    base = torch.randn(6, 4)
    return {
        "plain": torch.randn(3, 5),
        "tied": [base, base],
        "slice": base[:, 1:3],
        "transposed": base.t(),
        "image": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "one": torch.tensor(3.5),
        "empty": torch.empty(0, 7),
        "expanded": torch.ones(1).expand(9),
        "half": torch.randn(7).bfloat16(),
        "complex": torch.randn(3, dtype=torch.complex64).conj(),
        "flags": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "array": np.arange(5.0),
        "texts": np.array(["a", "bc"]),
        "scalar": np.float32(2),
    }


def bits(packed: Any) -> Any:
    skeleton, leaves = packed
    return skeleton, {name: (leaf.dtype, leaf.shape, bytes(leaf.data)) for name, leaf in leaves.items()}


def tensors_of(values: dict[str, Any]) -> list[torch.Tensor]:
    return [value for value in values.values() if isinstance(value, torch.Tensor)]


def spoil(values: dict[str, Any]) -> None:
    with torch.no_grad():
        for one in [*tensors_of(values), values["tied"][0]]:
            if one.numel() and not one.is_conj() and one.stride() != (0,):
                one.zero_()
    values["array"][:] = 0


@pytest.mark.parametrize("late", [False, True])
def test_the_copy_is_what_the_state_was(late: bool) -> None:
    staging = Staging()
    for _ in range(2):  # the second in the memory of the first
        values = state()
        expected = bits(state_tree.pack(values))
        staging.begin(defer=tensors_of(values) if late else ())
        packed = state_tree.pack(values, leaf_of=staging.leaf)
        staging.start_gpu_copies()
        assert staging.is_short
        staging.copy_deferred()
        assert not staging.has_changed()
        spoil(values)
        assert staging.has_changed() == late
        staging.wait()
        assert bits(packed) == expected


def test_what_cannot_be_saved_is_refused_as_ever() -> None:
    with pytest.raises(TypeError, match=r"torch\.sparse_coo\b.*\bfloat32\b"):
        Staging().leaf(torch.eye(2).to_sparse())


def test_only_what_was_named_is_late_and_lies_in_memory_of_its_own() -> None:
    named, other = torch.ones(2 << 20), torch.ones(2 << 20)
    staging = Staging()
    staging.begin(defer=[named, named.view(2, -1).t()])
    leaves = [staging.leaf(one) for one in (named, other)]
    staging.start_gpu_copies()
    assert not staging.is_short, "8 MB are left"
    other.zero_()
    assert not staging.has_changed() and bytes(leaves[1].data[:4]) == torch.ones(1).numpy().tobytes()
    named.add_(1)
    assert staging.has_changed()


def test_memory_is_kept_and_aligned() -> None:
    kept = StagingMemory(unpinned_memory)
    sizes = [1, 63, 64, 65, 3 << 20, 0, 5, 100 << 20, 7]
    first = [kept.allocate(size) for size in sizes]
    assert [len(one) for one in first] == sizes
    assert all(one.data_ptr() % 16 == 0 for one in first if len(one))
    spans = sorted((one.data_ptr(), one.data_ptr() + len(one)) for one in first if len(one))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    kept.reset()
    assert [kept.allocate(size).data_ptr() for size in sizes] == [one.data_ptr() for one in first]


def test_what_a_block_has_more_than_was_asked_for_is_used() -> None:
    """Torch's allocator of pinned memory takes powers of two."""
    blocks = []

    def rounded(num_bytes: int) -> Tensor:
        blocks.append(torch.empty(1 << (num_bytes - 1).bit_length(), dtype=torch.uint8))
        return blocks[-1]

    kept = StagingMemory(rounded)
    for size in (72 << 20, 24 << 20, 24 << 20, 8 << 20):
        assert len(kept.allocate(size)) == size
    assert [len(block) for block in blocks] == [128 << 20]


def test_a_gap_is_filled_by_a_later_tensor_that_fits() -> None:
    blocks = []

    def rounded(num_bytes: int) -> Tensor:
        blocks.append(torch.empty(1 << (num_bytes - 1).bit_length(), dtype=torch.uint8))
        return blocks[-1]

    kept, sizes = StagingMemory(rounded), [72 << 20, 65 << 20, 60 << 20, 50 << 20, 5 << 20]
    first = [kept.allocate(size).data_ptr() for size in sizes]
    assert [len(block) for block in blocks] == [128 << 20, 128 << 20]
    kept.reset()
    assert [kept.allocate(size).data_ptr() for size in sizes] == first


@pytest.mark.needs_gpu
def test_a_gpu_copies_beside_what_it_computes_and_before_what_comes_after() -> None:
    values = [torch.randn(4096, 4096, device="cuda") for _ in range(4)]
    expected = [value.cpu() for value in values]
    staging = Staging()
    staging.begin(defer=values[:2])
    leaves = [staging.leaf(value) for value in values]
    staging.start_gpu_copies()
    staging.copy_deferred()
    assert not staging.has_changed()
    staging.order_after_copies()
    for value in values:
        value.zero_()
    staging.wait()
    for leaf, one in zip(leaves, expected, strict=True):
        assert bytes(leaf.data) == one.numpy().tobytes()
