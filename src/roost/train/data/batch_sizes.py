"""The number of samples in a batch that the user's code has made, and a digest of its values."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DIGEST_VALUES = 1 << 16
"""Values of each tensor that the digest covers."""


def count_samples(value: Any) -> int:
    """Returns the leading dimension of the first tensor or array of a batch; else the length of a list, else
    1. An empty batch (None, an empty list, tuple or mapping) has 0 samples."""
    if is_empty(value):
        return 0
    first = next(_tensors(value), None)
    if first is not None:
        return int(first.shape[0])
    return len(value) if isinstance(value, list | tuple) else 1


def is_empty(value: Any) -> bool:
    """Whether a batch has no sample: None, an empty collection, a tensor or array without rows."""
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0 and value.shape[0] == 0
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def digest(value: Any) -> int:
    """Returns a CRC-32 of the first values of all tensors and arrays in a batch; never 0."""
    found = 1
    for one in _tensors(value):
        first = one.reshape(-1)[:_DIGEST_VALUES]
        if isinstance(first, Tensor):
            first = first.detach().resolve_conj().cpu().contiguous().view(torch.uint8).numpy()
        found = zlib.crc32(first.tobytes(), found)
    return found or 1


def _tensors(value: Any) -> Iterator[Any]:
    """Yields the tensors and arrays that have a leading dimension, in order."""
    if isinstance(value, Tensor | np.ndarray):
        if value.ndim:
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))
