"""The points of a curve that a picture can show: no extreme value is lost, however few the pixels."""

from __future__ import annotations

import numpy as np

from roost.operations.curves.record_columns import NumberArray

WIDTH = 1000
"""Columns: more than a panel has pixels."""
LARGEST = 1e300
"""Larger numbers are drawn as those that are not finite: the margins of an axis would overflow."""


def visible_points(x: NumberArray, y: NumberArray, width: int = WIDTH) -> NumberArray:
    """Returns the places of the first, least, greatest and last finite value in each of ``width`` columns of
    equal size; of a short curve all places. A line through them covers the same pixels as one through all
    points.

    Args:
        x: Positions, ascending.
        y: Finite values at them.
        width: The number of columns.
    """
    if len(x) <= 4 * width:
        return np.arange(len(x))
    begins = column_begins(x, width)
    ends = np.append(begins[1:], len(x))
    pieces = list(zip(begins.tolist(), ends.tolist(), strict=True))
    least = [begin + int(y[begin:end].argmin()) for begin, end in pieces]
    most = [begin + int(y[begin:end].argmax()) for begin, end in pieces]
    return np.unique(np.concatenate([begins, least, most, ends - 1]))


def visible_positions(x: NumberArray, width: int = WIDTH) -> NumberArray:
    """Returns the first position in each of ``width`` columns."""
    return x if len(x) <= width else x[column_begins(x, width)]


def column_begins(x: NumberArray, width: int) -> NumberArray:
    """Returns the places at which the columns that have points begin."""
    edges = np.linspace(float(x[0]), float(x[-1]), width + 1)[:-1]
    return np.unique(np.searchsorted(x, edges))
