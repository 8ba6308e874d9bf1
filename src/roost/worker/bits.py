"""Fingerprints of a trainer's state, to compare two moments bit for bit without keeping both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from roost.base import tree

Prints = dict[str, str]
"""By the dotted name of a value."""


def prints(states: Mapping[str, Any]) -> Prints:
    """A fingerprint of each value in the parts of a checkpoint. Reads everything from the device.

    Of the trainer's own part the state of the hooks alone: beside it are times, and how often it was loaded.

    Raises:
        CheckpointError: A state holds something that cannot be saved.
    """
    found: Prints = {}
    for name, state in states.items():
        skeleton, leaves = tree.pack(state["hooks"] if name == "trainer" else state)
        found.update((f"{name}.{path}", text) for path, text in _plain(skeleton, ""))
        for path, leaf in leaves.items():
            found[f"{name}.{path}"] = f"{leaf.dtype} {leaf.shape} {hashlib.sha256(leaf.data).hexdigest()}"
    return found


def _plain(skeleton: Any, path: str) -> Iterator[tuple[str, str]]:
    """The values of a skeleton that are no leaves."""
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(skeleton, dict):
        pairs = skeleton.items()
    elif isinstance(skeleton, list):
        pairs = enumerate(skeleton)
    else:
        yield path, repr(skeleton)
        return
    for key, value in pairs:
        yield from _plain(value, f"{path}.{key}" if path else str(key))


def differing(one: Prints, other: Prints) -> list[str]:
    """The names of the values that are not the same in both."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def num_bytes(state: Any) -> int:
    """Of all tensors in a nest."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, Mapping):
        return sum(map(num_bytes, state.values()))
    return sum(map(num_bytes, state)) if isinstance(state, list | tuple) else 0
