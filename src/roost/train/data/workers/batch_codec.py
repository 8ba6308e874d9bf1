"""Encodes a batch, or any other value, into shared memory, and decodes it as views of that memory.

Pickle is safe between processes that were forked from one another: they trust each other as they trust
themselves. The bytes are never written to a file that has a name.
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
"""(n,) uint8."""
_ALIGNMENT = 64
"""In bytes: a cache line, and more than any kernel of torch requires."""
_DTYPES = tuple(sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_NUMPY_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8}
    | {torch.uint8, torch.bool, torch.complex64, torch.complex128}
)
"""The dtypes that `Tensor.numpy` supports."""
_ARRAY_KINDS = "biufc"
"""NumPy kinds of the arrays that are copied as bytes."""
_MAX_EXTENT_RATIO = 4
"""A strided view is copied as it is if its memory from first to last element is at most so many times its
own size; otherwise it is made contiguous."""


to_bytes, from_bytes = pickle.dumps, pickle.loads
"""For small values: each direction makes a copy."""


class EncodedBatch:
    """A value encoded for shared memory: tensors and arrays as bytes with their strides, and the structure
    around them (the skeleton) as pickle.

    Args:
        value: Any nest.

    Raises:
        Exception: Any error of pickle about a value that it cannot encode.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        encoder = _Encoder(file)
        encoder.dump(value)
        self._parts, self._skeleton = encoder.parts, file.getbuffer()
        self.begin = encoder.end
        """Offset of the skeleton, after the tensors and arrays."""
        self.end = encoder.end + self._skeleton.nbytes

    def write(self, memory: memoryview[Any]) -> None:
        """Writes the value into memory of at least `end` bytes."""
        for begin, part in self._parts:
            memory[begin : begin + part.nbytes] = part
        memory[self.begin : self.end] = self._skeleton


class _DecodeContext(threading.local):
    """The value being decoded in this thread: pickle passes no argument to the functions that it calls."""

    memory: Any = None
    pin: bool = False


_context = _DecodeContext()


def decode(memory: ByteArray, begin: int, end: int, *, pin: bool = False) -> Any:
    """Returns the value that was written; its tensors and arrays are views of ``memory`` and keep it alive.

    Args:
        memory: The written bytes, or more.
        begin: Offset of the skeleton.
        end: End of the skeleton.
        pin: Copies each tensor into its own page-locked memory, and arrays into plain memory, so that nothing
            refers to ``memory``. Torch does not reuse such a piece while a copy to the device may still read
            it; for one larger piece it could not know.
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
        """Offset and bytes of each part."""
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
