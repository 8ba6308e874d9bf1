"""Tensors and arrays made from bytes that were read from a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from roost.base.errors import CheckpointError

ALIGNMENT = 64
"""Bytes; the alignment of memory that torch allocates. With another alignment the libraries below torch may
round differently, and some types crash the process (complex128 at an address that is no multiple of 16)."""
_VIEWED_BYTES = 1 << 16
"""The smallest tensor that may be a view. A view keeps the memory of its whole file alive and cannot be
resized; smaller tensors are copied instead, which costs almost nothing."""


def tensor_from_bytes(
    data: memoryview[Any],
    dtype_name: str,
    shape: tuple[int, ...],
    *,
    order: list[int] | None = None,
    may_view: bool = False,
) -> Any:
    """Returns a tensor with these bytes.

    Args:
        data: C-contiguous bytes, as in `roost.base.state_tree.Leaf`.
        dtype_name: Torch's name of the type.
        shape: The tensor's shape.
        order: The dimensions from the outermost in memory to the innermost; None for C order.
        may_view: Whether the caller gives the bytes away, so that the tensor may be a view of them.

    Raises:
        CheckpointError: The number of bytes does not fit the shape, or torch has no such type.
    """
    import torch

    dtype = torch_dtype(dtype_name)
    count = math.prod(shape)
    if data.nbytes != count * dtype.itemsize:
        raise CheckpointError(f"a tensor of shape {shape} and type {dtype_name} has {data.nbytes} bytes")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    found = torch.frombuffer(data, dtype=torch.uint8)  # a separate storage that shares the memory
    if not may_view or count * dtype.itemsize < _VIEWED_BYTES or found.data_ptr() % ALIGNMENT:
        found = torch.empty(len(found), dtype=torch.uint8).copy_(found)
    found = found.view(dtype).reshape(shape)
    if order is None:
        return found
    inverse = sorted(range(len(order)), key=lambda n: order[n])
    return found.permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


def torch_dtype(name: str) -> Any:
    """Returns torch's dtype of this name.

    Raises:
        CheckpointError: This torch has no such dtype.
    """
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"this torch has no dtype {name!r}", fix="read it with a newer torch")
    return dtype


def array_from_bytes(data: memoryview[Any], dtype_name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns a view of these bytes as an array. Types that NumPy lacks (bfloat16, float8) become unsigned
    integers of the same width.

    Raises:
        CheckpointError: The number of bytes does not fit the shape.
    """
    try:
        dtype = np.dtype(dtype_name)
    except TypeError:  # NumPy has no such type
        width = data.nbytes // max(1, math.prod(shape))
        dtype = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else np.uint8)
    if data.nbytes != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(f"an array of shape {shape} and type {dtype_name} has {data.nbytes} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
