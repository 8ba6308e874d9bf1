"""Seeded generators and caching for the orders of all plans, and the checks that they share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from roost.base.errors import ConfigError
from roost.train.step.seeding import mix

Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]

Result = TypeVar("Result")


def generator(*parts: int | str) -> np.random.Generator:
    """Returns a generator seeded with a hash of ``parts``."""
    return np.random.Generator(np.random.PCG64(mix(*parts)))


def cache_latest(method: Callable[[Any, int], Result]) -> Callable[[Any, int], Result]:
    """Caches the newest result of a method of a frozen object, for one value of its argument.

    Virtual epochs and excerpts need the same order many times, and ordering a million samples takes 10 to
    100 ms. The result is stored on the object and freed with it.
    """
    attribute = f"_newest_{method.__name__}"

    @functools.wraps(method)
    def cached(self: Any, number: int) -> Result:
        found: tuple[int, Result] | None = vars(self).get(attribute)
        if found is None or found[0] != number:
            found = number, method(self, number)
            vars(self)[attribute] = (
                found  # one assignment: another thread sees either the old pair or the new one
            )
        return found[1]

    return cached


def check_not_empty(
    num_samples: int,
    num_batches: int,
    limit: int | None,
    *,
    setting: str = "data.batch_size",
    num_draws: int | None = None,
) -> None:
    """Checks that an epoch has at least one batch.

    Args:
        num_samples: Samples in the set.
        num_batches: Batches in an epoch.
        limit: The value of ``setting``, which limits a batch.
        setting: The setting to name in the error.
        num_draws: Samples an epoch, if not those of the set.

    Raises:
        ConfigError: There is no sample, or not one batch.
    """
    if num_samples < 1:
        raise ConfigError("the dataset is empty", fix="check what Dataset.build() returns")
    if num_batches < 1:
        what, count = ("the dataset", num_samples) if num_draws is None else ("an epoch", num_draws)
        raise ConfigError(
            f"{what} has {count} sample{'' if count == 1 else 's'}, which is not one batch",
            setting=setting,
            received=limit,
            fix=f"make {setting} smaller, or set data.drop_last=false",
        )


def num_batches_of(num_samples: int, batch_size: int, drop_last: bool) -> int:
    """Returns the number of batches of equal size in ``num_samples`` samples."""
    return num_samples // batch_size if drop_last else -(-num_samples // batch_size)
