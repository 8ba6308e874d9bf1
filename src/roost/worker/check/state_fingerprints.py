"""Fingerprints of a trainer's state, to compare two states bit for bit without keeping both in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roost.base import state_tree

Fingerprints = dict[str, str]
"""Fingerprints by the dotted names of the values, such as ``model.net.0.weight``."""


def fingerprints(states: Mapping[str, Any]) -> Fingerprints:
    """Returns a fingerprint of each value in the parts of a checkpoint. A sync point: it reads them all.

    Of the part ``trainer`` only the state of the hooks is included: the rest contains times.

    Raises:
        CheckpointError: A state contains a value that cannot be saved.
    """
    found: Fingerprints = {}
    for name, state in states.items():
        skeleton, leaves = state_tree.pack(state["hooks"] if name == "trainer" else state)
        found.update((f"{name}.{path}", text) for path, text in _plain_values(skeleton, ""))
        for path, leaf in leaves.items():
            found[f"{name}.{path}"] = f"{leaf.dtype} {leaf.shape} {hashlib.sha256(leaf.data).hexdigest()}"
    return found


def _plain_values(skeleton: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields the values in the skeleton itself (no tensors), with their paths."""
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(skeleton, dict):
        pairs = skeleton.items()
    elif isinstance(skeleton, list):
        pairs = enumerate(skeleton)
    else:
        yield path, repr(skeleton)
        return
    for key, value in pairs:
        yield from _plain_values(value, f"{path}.{key}" if path else str(key))


def differing(one: Fingerprints, other: Fingerprints) -> list[str]:
    """Returns the names of the values that differ or are in only one of the two."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]
