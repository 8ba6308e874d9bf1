"""What a set says about its samples beside their data: ids and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def sample_column(dataset: Any, what: str) -> Any:
    """Returns ``ids`` or ``groups`` of a set, from an attribute or a method without arguments; None if it has
    neither. Subsets and concatenations take them from the sets in them."""
    from torch.utils.data import ConcatDataset, Subset

    found = getattr(dataset, what, None)
    if found is not None:
        return found() if callable(found) else found
    if isinstance(dataset, Subset):
        return _map(
            sample_column(dataset.dataset, what), lambda values: [values[index] for index in dataset.indices]
        )
    if isinstance(dataset, ConcatDataset):
        parts = [sample_column(one, what) for one in dataset.datasets]
        if any(one is None for one in parts):
            return None
        if all(isinstance(one, Mapping) for one in parts):
            lengths = [len(one) for one in dataset.datasets]  # type: ignore[arg-type]
            names = {name: None for one in parts for name in one}
            return {
                name: [
                    label
                    for one, length in zip(parts, lengths, strict=True)
                    for label in one.get(name, [None] * length)
                ]
                for name in names
            }
        return [value for one in parts for value in one]
    return None


def _map(found: Any, change: Any) -> Any:
    if found is None:
        return None
    if isinstance(found, Mapping):
        return {name: change(list(values)) for name, values in found.items()}
    return change(list(found))


def plain_value(value: Any) -> Any:
    """Returns an array or tensor of one number as this number."""
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
    return value.item() if hasattr(value, "item") and count == 1 else value


def ids_at(dataset: Any, indices: Sequence[int]) -> list[int | float | str]:
    """Returns the ids of samples, for a message; none if the set has no ids, or too few."""
    given = None if isinstance(dataset, Mapping) else sample_column(dataset, "ids")
    listed = [] if given is None else list(given)
    if not indices or max(indices) >= len(listed):
        return []
    return [plain_value(listed[index]) for index in indices]
