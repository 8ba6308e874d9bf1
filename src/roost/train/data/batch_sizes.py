"""How many samples a batch holds that somebody else has made."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DIGEST_VALUES = 1 << 16
"""Values of each tensor."""


def count_samples(value: Any) -> int:
    """Samples in a batch: the leading dimension of its first tensor or array; else the length of a list, else
    1.

    0: it is empty, as None and an empty list, tuple or mapping are.
    """
    if is_empty(value):
        return 0
    first = next(_tensors(value), None)
    if first is not None:
        return int(first.shape[0])
    return len(value) if isinstance(value, list | tuple) else 1


def is_empty(value: Any) -> bool:
    """Whether nothing can be computed of it: None, an empty collection, a tensor or an array of no rows."""
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0 and value.shape[0] == 0
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def digest(value: Any) -> int:
    """A number that two batches share whose tensors and arrays begin alike; never 0."""
    found = 1
    for one in _tensors(value):
        first = one.reshape(-1)[:_DIGEST_VALUES]
        if isinstance(first, Tensor):
            first = first.detach().resolve_conj().cpu().contiguous().view(torch.uint8).numpy()
        found = zlib.crc32(first.tobytes(), found)
    return found or 1


def _tensors(value: Any) -> Iterator[Any]:
    """Its tensors and arrays that have a leading dimension, in their order."""
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
