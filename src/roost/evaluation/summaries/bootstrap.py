"""Bootstrap intervals of a mean, for any number of values, in bounded time.

The percentile interval (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13): the values
are drawn again with replacement, and the interval leaves 2.5 % of the means at each end. How often each of
the values is drawn follows a multinomial distribution, so equal values are drawn together, by one number. Of
more different values than `_MAX_NUMBERS`, neighbours share a number, too: the sum of the values that are
drawn from such a bin is normal, with the mean and the variance inside the bin. The extremes remain single
values.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

RESAMPLES = 1000
_MAX_NUMBERS = 1024
"""Bins of the values; up to so many different values the bootstrap is exact."""
_EXTREMES = 128
"""Values at each end that are bins of their own."""
_TAILS = (0.025, 0.975)

Array = np.ndarray[Any, Any]


def seed_of(*words: str) -> int:
    """Returns the seed that belongs to these words."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:8], "little")


def mean_interval(values: Array, *, seed: int) -> tuple[float, float] | None:
    """Returns the ends of the 95 % interval of the mean; None for fewer than two values, or where numbers
    overflow.

    Args:
        values: (n,) finite numbers, in any order; the result does not depend on it.
        seed: The seed of the draws.
    """
    if len(values) < 2:
        return None
    with np.errstate(all="ignore"):
        low, high = _interval(np.sort(values.astype(np.float64)), np.random.Generator(np.random.PCG64(seed)))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _interval(ordered: Array, draws: np.random.Generator) -> tuple[float, float]:
    means, counts, variances = _bins(ordered)
    if len(means) == 1:
        return float(means[0]), float(means[0])
    total = int(counts.sum())
    drawn = draws.multinomial(total, counts / total, size=RESAMPLES)
    # No matrix product: the order of BLAS's additions follows from the number of its threads.
    sums = (drawn * means).sum(axis=1)
    if variances.any():
        sums = sums + np.sqrt((drawn * variances).sum(axis=1)) * draws.standard_normal(RESAMPLES)
    low, high = np.quantile(sums / total, _TAILS)
    return float(low), float(high)


def _bins(ordered: Array) -> tuple[Array, Array, Array]:
    """Returns mean, number and variance of the values of each bin."""
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) > _MAX_NUMBERS:
        inner = np.linspace(_EXTREMES, len(ordered) - _EXTREMES, _MAX_NUMBERS - 2 * _EXTREMES + 1)
        ends = np.arange(len(ordered) - _EXTREMES + 1, len(ordered))
        starts = np.unique(np.concatenate([np.arange(_EXTREMES), inner.astype(np.int64), ends]))
    counts = np.diff(np.append(starts, len(ordered)))
    means = np.add.reduceat(ordered, starts) / counts
    deviations = ordered - np.repeat(means, counts)
    variances = np.add.reduceat(deviations * deviations, starts) / counts
    variances[counts == 1] = 0.0
    means[counts == 1] = ordered[starts[counts == 1]]
    return means, counts, variances


def exact_mean(values: Array) -> float:
    """Returns the mean of (n,) finite numbers, the same on any machine: their sum is rounded once."""
    try:
        return math.fsum(values.tolist()) / len(values)
    except OverflowError:
        return math.fsum((values / len(values)).tolist())
