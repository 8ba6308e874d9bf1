"""Exponential moving averages."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from roost.operations.curves.record_columns import NumberArray


def smooth(values: NumberArray, factor: float) -> NumberArray:
    """Returns the exponential moving average of some values, each the mean so far with weights ``1, factor,
    factor², …`` from the newest on. The weights are normalized, so the first mean is the first value.

    Args:
        values: Finite values.
        factor: From 0, which changes nothing, to below 1.
    """
    rest = 1 - factor
    sums = list(accumulate(values.tolist(), lambda total, one: total * factor + one * rest, initial=0.0))
    return np.array(sums[1:]) / (1 - factor ** np.arange(1, len(values) + 1, dtype=np.float64))
