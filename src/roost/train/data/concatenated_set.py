"""Several map-style sets as one, like torch's ConcatDataset, with ``rng`` and errors that name the set."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from roost.train.data.fetch import takes_rng


class ConcatenatedSet:
    """The samples of several sets, one set after the other, each sample read as from its own set.

    Args:
        sets: Map-style sets by name.

    Attributes:
        draws_randomness: Whether any set draws random numbers.
        cumulative_sizes: For each set the index after its last sample, as in torch's ConcatDataset.
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
        (name, dataset), local_index = self._sets[number], index
        if number:
            local_index -= self.cumulative_sizes[number - 1]
        try:
            if self._take_rng[number]:
                return dataset.__getitem__(local_index, rng=rng)
            return dataset[local_index]
        except Exception as error:
            error.add_note(f"while reading sample {local_index} of {name} ({type(dataset).__name__})")
            raise


class ConcatenatedSetWithRng(ConcatenatedSet):
    """A `ConcatenatedSet` of which at least one set takes ``rng``."""

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> Any:
        return self._read(index, rng)


def concatenate(sets: Mapping[str, Any]) -> ConcatenatedSet:
    """Returns the samples of several map-style sets as one set, which takes ``rng`` if one of them does."""
    return (ConcatenatedSetWithRng if any(map(takes_rng, sets.values())) else ConcatenatedSet)(sets)
