"""The tensors in a nest of mappings, lists and tuples: a batch, an output, a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


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
