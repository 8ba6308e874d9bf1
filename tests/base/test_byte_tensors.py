from __future__ import annotations

import copy
import weakref

import numpy as np
import pytest
import torch

from roost.base import byte_tensors
from roost.base.errors import CheckpointError
from tests.messages import Messages

LARGE = 1 << 16


def aligned(size: int, *, shift: int = 0) -> memoryview:
    """Memory at an address that lies ``shift`` bytes behind a multiple of the alignment."""
    room = np.zeros(size + 2 * byte_tensors.ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % byte_tensors.ALIGNMENT + shift
    return room[begin : begin + size].data


def shares(tensor: torch.Tensor, data: memoryview) -> bool:
    data[:4] = np.float32(7).tobytes()
    return tensor.flatten()[0].item() == 7


def test_a_large_tensor_may_be_a_view() -> None:
    data = aligned(LARGE)
    found = byte_tensors.tensor_from_bytes(data, "float32", (128, 128), may_view=True)
    assert found.shape == (128, 128) and found.dtype == torch.float32 and shares(found, data)
    found.add_(1)
    assert np.frombuffer(data, np.float32)[:2].tolist() == [8, 1]


@pytest.mark.parametrize("why", ["not asked", "small", "not aligned", "another layout"])
def test_every_other_is_a_copy(why: str) -> None:
    data = aligned(LARGE - 4 * (why == "small"), shift=16 * (why == "not aligned"))
    order = [1, 0] if why == "another layout" else None
    shape = (data.nbytes // 4, 1) if order is None else (64, 256)
    found = byte_tensors.tensor_from_bytes(data, "float32", shape, order=order, may_view=why != "not asked")
    assert not shares(found, data)
    assert found.data_ptr() % byte_tensors.ALIGNMENT == 0
    assert found.stride() == ((1, 64) if order else (1, 1))


def test_a_copy_of_one_view_is_not_one_of_all() -> None:
    """A storage that spans the file would be copied, pickled and shared as a whole with each tensor."""
    data = aligned(3 * LARGE)
    found = byte_tensors.tensor_from_bytes(data[LARGE : 2 * LARGE], "float32", (LARGE // 4,), may_view=True)
    assert found.untyped_storage().nbytes() == LARGE and found.storage_offset() == 0
    assert copy.deepcopy(found).untyped_storage().nbytes() == LARGE


def test_a_view_keeps_the_memory_as_long_as_it_lives() -> None:
    data = aligned(LARGE)
    memory = weakref.ref(data.obj)
    found = byte_tensors.tensor_from_bytes(data, "uint8", (LARGE,), may_view=True)
    del data
    assert memory() is not None
    del found
    assert memory() is None


def test_types_that_numpy_lacks_come_as_integers() -> None:
    assert byte_tensors.array_from_bytes(memoryview(b"\1\2\3\4"), "bfloat16", (2,)).tolist() == [0x201, 0x403]
    assert byte_tensors.array_from_bytes(memoryview(b"\1\2"), "float8_e5m2", (2, 1)).tolist() == [[1], [2]]


@pytest.mark.parametrize("make", [byte_tensors.tensor_from_bytes, byte_tensors.array_from_bytes])
def test_bytes_that_are_too_few(make: object, messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        make(memoryview(bytearray(4)), "float32", (2,))  # type: ignore[operator]
    messages.check(refused.value)
    assert all(fact in str(refused.value) for fact in ("float32", "4 bytes"))


def test_a_type_that_torch_lacks(messages: Messages) -> None:
    assert byte_tensors.torch_dtype("bfloat16") is torch.bfloat16
    for name in ("float7", "Tensor"):
        with pytest.raises(CheckpointError) as refused:
            byte_tensors.torch_dtype(name)
        messages.check(refused.value)
