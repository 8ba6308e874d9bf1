"""The tensors in a nest of mappings, lists and tuples, such as a batch or an output; their shapes as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

_MAX_SHAPES = 4
"""The most tensors of a nest whose shapes are named."""


def nested_tensors(value: Any, *, max_depth: int | None = None) -> Iterator[Tensor]:
    """Yields the tensors of a nest in order, one that occurs twice twice. A value that is neither a tensor
    nor a collection is passed over.

    Args:
        value: A tensor, or mappings, lists and tuples of tensors and others.
        max_depth: The levels of collections that are searched; None: all, and then the nest must not contain
            itself.
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple) and max_depth != 0:
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from nested_tensors(one, max_depth=None if max_depth is None else max_depth - 1)


def format_shapes(value: Any, *, max_depth: int | None = None) -> str:
    """Returns the shapes of the first tensors of a nest as text: ``64x3x32x32, 64``. Arguments as for
    `nested_tensors`."""
    shapes = [format_shape(one) for one in nested_tensors(value, max_depth=max_depth)]
    return ", ".join(shapes[:_MAX_SHAPES]) + (", …" if len(shapes) > _MAX_SHAPES else "")


def format_shape(tensor: Tensor) -> str:
    """Returns the shape of a tensor as text: ``64x10``."""
    return "x".join(map(str, tensor.shape)) or "one number"
