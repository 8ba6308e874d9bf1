"""A batch, or any other value, as bytes in shared memory, and back as views of them.

What processes that were forked from one another say to each other may go by pickle: neither trusts the other
less than itself. Nothing of it is ever written to a file that has a name.
"""

from __future__ import annotations

import io
import math
import pickle
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

ByteArray = np.ndarray[tuple[int], np.dtype[np.uint8]]
"""(n,) bytes."""
_ALIGNMENT = 64
"""Bytes: a cache line, and more than any kernel of torch asks for."""
_DTYPES = tuple(sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_NUMPY_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8}
    | {torch.uint8, torch.bool, torch.complex64, torch.complex128}
)
"""What `Tensor.numpy` takes as it is."""
_ARRAY_KINDS = "biufc"
"""Of arrays that go as bytes."""
_MAX_EXTENT_RATIO = 4
"""Times its own bytes that the memory from a view's first element to its last may have, to go as it lies."""


to_bytes, from_bytes = pickle.dumps, pickle.loads
"""Of what is small: a copy each way."""


class EncodedBatch:
    """A value, ready to be written.

    Tensors and arrays go as bytes, with the strides they have; all around them, the skeleton, goes by pickle.

    Args:
        value: Any nest.

    Raises:
        Exception: Whatever pickle raises about what it cannot take.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        packer = _Encoder(file)
        packer.dump(value)
        self._parts, self._skeleton = packer.parts, file.getbuffer()
        self.begin = packer.end
        """Where the skeleton begins: after the parts."""
        self.end = packer.end + self._skeleton.nbytes

    def write(self, memory: memoryview[Any]) -> None:
        """Writes it into memory of `end` bytes or more."""
        for begin, part in self._parts:
            memory[begin : begin + part.nbytes] = part
        memory[self.begin : self.end] = self._skeleton


class _DecodeContext(threading.local):
    """What is being unpacked in this thread: pickle hands nothing through to what it calls."""

    memory: Any = None
    pin: bool = False


_context = _DecodeContext()


def decode(memory: ByteArray, begin: int, end: int, *, pin: bool = False) -> Any:
    """The value that was written there; its tensors and arrays are views of ``memory`` and keep it alive.

    Args:
        memory: As much of it as was written, or more.
        begin: Of the skeleton.
        end: Of the skeleton.
        pin: Tensors are copied into page-locked memory of their own instead, arrays into plain memory, and
            nothing refers to ``memory``. Torch looks after the reuse of each such piece while a copy to the
            device may still read it; of a larger piece it could not.
    """
    _context.memory, _context.pin = memory, pin
    try:
        return pickle.loads(memory[begin:end].data)  # noqa: S301
    finally:
        _context.memory = None


class _Encoder(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.parts: list[tuple[int, memoryview[Any]]] = []
        """Where each begins, and its bytes."""
        self.end = 0

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor:
            return self._tensor(value)
        if type(value) is np.ndarray and value.dtype.kind in _ARRAY_KINDS and value.dtype.isnative:
            return self._array(value)
        return NotImplemented

    def _put(self, part: memoryview[Any]) -> int:
        begin = self.end
        self.parts.append((begin, part))
        self.end = -(-(begin + part.nbytes) // _ALIGNMENT) * _ALIGNMENT
        return begin

    def _tensor(self, value: Tensor) -> Any:
        if value.layout is not torch.strided or value.requires_grad or value.device.type != "cpu":
            return NotImplemented
        if value.is_quantized:
            return NotImplemented
        code, shape = _CODES[value.dtype], tuple(value.shape)
        if value.numel() == 0:
            return _decode_empty, (code, shape)
        if value.dtype not in _NUMPY_DTYPES or not value.is_contiguous() or value.is_conj() or value.is_neg():
            return self._strided(value, code)
        return _decode_tensor, (self._put(_bytes(value.numpy())), code, shape)

    def _strided(self, value: Tensor, code: int) -> Any:
        value = value.resolve_conj().resolve_neg()
        extent = 1 + sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
        if extent > _MAX_EXTENT_RATIO * value.numel():
            value, extent = value.contiguous(), value.numel()
        flat = torch.as_strided(value, (extent,), (1,)).view(torch.uint8)
        begin = self._put(_bytes(flat.numpy()))
        return _decode_strided, (begin, code, tuple(value.shape), value.stride())

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if value.size == 0 or not value.flags.c_contiguous:
            return NotImplemented
        flat = value.reshape(-1).view(np.uint8)
        return _decode_array, (self._put(_bytes(flat)), value.dtype.str, value.shape)


def _bytes(array: Any) -> memoryview[Any]:
    return memoryview(array).cast("B")


def _decode_empty(code: int, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=_DTYPES[code])


def _decode_tensor(begin: int, code: int, shape: tuple[int, ...]) -> Tensor:
    found = torch.frombuffer(_context.memory, dtype=_DTYPES[code], count=math.prod(shape), offset=begin)
    if len(shape) != 1:
        found = found.view(shape)
    return found.pin_memory() if _context.pin else found


def _decode_strided(begin: int, code: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    count = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    found = torch.frombuffer(_context.memory, dtype=_DTYPES[code], count=count, offset=begin)
    return (found.pin_memory() if _context.pin else found).as_strided(shape, stride)


def _decode_array(begin: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    found: np.ndarray[Any, Any] = _context.memory[begin : begin + math.prod(shape) * kind.itemsize]
    found = found.view(kind).reshape(shape)
    return found.copy() if _context.pin else found
