"""Several sets as one."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from roost.train.data.fetch import takes_rng


class ConcatenatedSet:
    """The samples of several sets, one set after the other, each read as it would be alone.

    Args:
        sets: Map-style, by name.

    Attributes:
        draws_randomness: Whether one of them does.
        cumulative_sizes: Of each set the index behind its last sample, as in torch's ConcatDataset.
    """

    def __init__(self, sets: Mapping[str, Any]) -> None:
        self._sets = list(sets.items())
        self.cumulative_sizes = [*itertools.accumulate(len(one) for one in sets.values())]
        self._take_rng = [takes_rng(one) for one in sets.values()]
        self.draws_randomness = any(getattr(one, "draws_randomness", True) for one in sets.values())

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        return self._read(index, None)

    def _read(self, index: int, rng: np.random.Generator | None) -> Any:
        number = bisect_right(self.cumulative_sizes, index)
        (name, dataset), own = self._sets[number], index
        if number:
            own -= self.cumulative_sizes[number - 1]
        try:
            return dataset.__getitem__(own, rng=rng) if self._take_rng[number] else dataset[own]
        except Exception as error:
            error.add_note(f"while reading sample {own} of {name} ({type(dataset).__name__})")
            raise


class ConcatenatedSetWithRng(ConcatenatedSet):
    """The same where one of the sets takes ``rng``."""

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> Any:
        return self._read(index, rng)


def concatenate(sets: Mapping[str, Any]) -> ConcatenatedSet:
    """The samples of several map-style sets by name, one set after the other."""
    return (ConcatenatedSetWithRng if any(map(takes_rng, sets.values())) else ConcatenatedSet)(sets)
