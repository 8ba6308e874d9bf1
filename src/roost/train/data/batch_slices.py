"""Slices and concatenates batches that the user's code makes: nests of tensors, arrays and lists."""

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
    """A batch cannot be sliced, or several cannot be concatenated, by their structure."""


def first_samples(batches: Iterator[Batch], num_samples: int) -> Batch | None:
    """Returns the first ``num_samples`` samples of ``batches`` as one batch, drawing only as many batches as
    needed; None if all are empty. If the batches can be neither concatenated nor sliced, the result has fewer
    samples, or more."""
    found: Batch | None = None
    for one in batches:
        if not one.num_samples:
            continue
        try:
            found = one if found is None else _append(found, one)
        except IncompatibleBatches:
            break
        if found.num_samples >= num_samples:
            break
    if found is None or found.num_samples <= num_samples:
        return found
    try:
        value = slice_batch(found.value, found.num_samples, slice(num_samples))
        return found._replace(value=value, num_samples=num_samples)
    except IncompatibleBatches:
        return found


def _append(first: Batch, second: Batch) -> Batch:
    value = concatenate_batches([first.value, second.value])
    return second._replace(value=value, num_samples=first.num_samples + second.num_samples)


def slice_batch(value: Any, num_samples: int, part: slice) -> Any:
    """Slices a nest of tensors, arrays and lists with ``num_samples`` samples each.

    Raises:
        IncompatibleBatches: A part has another number of samples.
    """
    if isinstance(value, Tensor | np.ndarray):
        if value.ndim and value.shape[0] == num_samples:
            return value[part]
        raise IncompatibleBatches
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        try:
            return type(value)(slice_batch(one, num_samples, part) for one in value)
        except IncompatibleBatches:
            if len(value) != num_samples:
                raise
            return value[part]  # a list with one element for each sample
    return _map_parts([value], lambda parts: slice_batch(parts[0], num_samples, part))


def concatenate_batches(values: Sequence[Any]) -> Any:
    """Concatenates nests of one structure: their tensors and arrays along dimension 0, and their lists.

    Raises:
        IncompatibleBatches: The nests differ in more than the number of samples.
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
    """Applies ``part`` to the parts of mappings, named tuples or dataclasses of one structure."""
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
