"""The first samples of a set as one batch, whatever its batches are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from roost.train.data.batches import Batch


class IncompatibleBatches(Exception):
    """Batches that cannot be cut, or joined, by themselves."""


def first_samples(batches: Iterator[Batch], num_samples: int) -> Batch | None:
    """The first samples of whole batches: joined where one is too small, cut where there are more.

    Args:
        batches: Drawn as far as needed.
        num_samples: At most so many.

    Returns:
        None where no batch holds anything. Where they cannot be joined or cut it has fewer samples, or more.
    """
    taken: Batch | None = None
    for one in batches:
        if not one.num_samples:
            continue
        try:
            taken = one if taken is None else _append(taken, one)
        except IncompatibleBatches:
            break
        if taken.num_samples >= num_samples:
            break
    if taken is None or taken.num_samples <= num_samples:
        return taken
    try:
        value = slice_batch(taken.value, taken.num_samples, slice(num_samples))
        return taken._replace(value=value, num_samples=num_samples)
    except IncompatibleBatches:
        return taken


def _append(first: Batch, second: Batch) -> Batch:
    value = concatenate_batches([first.value, second.value])
    return second._replace(value=value, num_samples=first.num_samples + second.num_samples)


def slice_batch(value: Any, has: int, part: slice) -> Any:
    """Some of the ``has`` samples of a nest of tensors, arrays and lists that have as many each.

    Raises:
        Unlike: Something in it has not.
    """
    if isinstance(value, Tensor | np.ndarray):
        if value.ndim and value.shape[0] == has:
            return value[part]
        raise IncompatibleBatches
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        try:
            return type(value)(slice_batch(one, has, part) for one in value)
        except IncompatibleBatches:
            if len(value) != has:
                raise
            return value[part]  # a sample each
    return _map_parts([value], lambda parts: slice_batch(parts[0], has, part))


def concatenate_batches(values: Sequence[Any]) -> Any:
    """Nests of one form, their tensors, arrays and lists of samples one behind the other.

    Raises:
        Unlike: They differ in more than the number of samples.
    """
    first = values[0]
    if any(type(one) is not type(first) for one in values):
        raise IncompatibleBatches
    if isinstance(first, Tensor | np.ndarray):
        if not first.ndim or any(
            one.shape[1:] != first.shape[1:] or one.dtype != first.dtype for one in values
        ):
            raise IncompatibleBatches
        return torch.cat(list(values)) if isinstance(first, Tensor) else np.concatenate(values)
    if isinstance(first, list | tuple) and not hasattr(first, "_fields"):
        if not any(_is_nest(one) for value in values for one in value):
            return type(first)(one for value in values for one in value)
        if len({len(one) for one in values}) != 1:
            raise IncompatibleBatches
        return type(first)(concatenate_batches(parts) for parts in zip(*values, strict=True))
    return _map_parts(values, concatenate_batches)


def _map_parts(values: Sequence[Any], part: Any) -> Any:
    """Mappings, named tuples and dataclasses of one form, from what ``part`` makes of their parts."""
    first = values[0]
    if isinstance(first, Mapping):
        if any(one.keys() != first.keys() for one in values) or type(first) is not dict:
            raise IncompatibleBatches
        return {name: part([one[name] for one in values]) for name in first}
    if isinstance(first, tuple):
        return type(first)(*(part(list(parts)) for parts in zip(*values, strict=True)))
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first) if field.init]
        return dataclasses.replace(first, **{n: part([getattr(one, n) for one in values]) for n in names})
    raise IncompatibleBatches


def _is_nest(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray | Mapping | list | tuple) or dataclasses.is_dataclass(value)
