"""What the orders of all plans are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from roost.base.errors import ConfigError
from roost.train.step.seeding import mix

Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]

Result = TypeVar("Made")


def generator(*parts: int | str) -> np.random.Generator:
    """A generator whose numbers are a pure function of these."""
    return np.random.Generator(np.random.PCG64(mix(*parts)))


def cache_latest(method: Callable[[Any, int], Result]) -> Callable[[Any, int], Result]:
    """Keeps what a method of a frozen object gave for the number it was asked for last.

    A virtual epoch or an excerpt asks for the same order many times, and a set of a million samples takes
    10 to 100 ms to order. It is kept on the object, so it goes when the object goes.
    """
    place = f"_newest_{method.__name__}"

    @functools.wraps(method)
    def kept(self: Any, number: int) -> Result:
        found: tuple[int, Result] | None = vars(self).get(place)
        if found is None or found[0] != number:
            found = number, method(self, number)
            vars(self)[place] = found  # in one assignment: another thread sees the old pair or the new one
        return found[1]

    return kept


def check_not_empty(
    num_samples: int,
    num_batches: int,
    limit: int | None,
    *,
    setting: str = "data.batch_size",
    num_draws: int | None = None,
) -> None:
    """That there is something to train on.

    Args:
        num_samples: Samples in the set.
        num_batches: Batches in an epoch.
        limit: What limits a batch, the value of ``setting``.
        setting: Its name.
        num_draws: Samples an epoch, where they are not those of the set.

    Raises:
        ConfigError: There is no sample, or not one batch.
    """
    if num_samples < 1:
        raise ConfigError("the dataset is empty", fix="look at what Dataset.build() returns")
    if num_batches < 1:
        what, count = ("the dataset", num_samples) if num_draws is None else ("an epoch", num_draws)
        raise ConfigError(
            f"{what} has {count} sample{'' if count == 1 else 's'}, which is not one batch",
            setting=setting,
            received=limit,
            fix=f"make {setting} smaller, or set data.drop_last=false",
        )


def num_batches_of(num_samples: int, batch_size: int, drop_last: bool) -> int:
    """Batches of one size that so many samples make."""
    return num_samples // batch_size if drop_last else -(-num_samples // batch_size)
