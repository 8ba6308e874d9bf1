"""The mean of the curves of several runs, with a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots.point_reduction import WIDTH, column_begins

Points = tuple[NumberArray, NumberArray]
"""Positions, ascending, and finite values at them."""


class Band(NamedTuple):
    """A mean with a band."""

    x: NumberArray
    mean: NumberArray
    low: NumberArray
    high: NumberArray
    counts: NumberArray
    """The number of curves at each position."""


def mean_band(curves: Sequence[Points], kind: str) -> Band:
    """Returns the mean of some curves, at all their positions; at `WIDTH` positions if there are more.

    Between two of its points a curve is interpolated, outside of them it does not count. Of several curves
    the mean begins and ends where fewer than two have a value. If there are more positions than `WIDTH`, the
    mean of each curve in each column counts, and a ``min-max`` band has its least and greatest value there.

    Args:
        curves: The curves, each with a point.
        kind: ``std``: mean ± standard deviation of the sample; ``min-max``.
    """
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    columns = len(grid) > WIDTH
    if columns:
        grid = np.linspace(grid[0], grid[-1], WIDTH)
    middle, low, high = (
        np.stack(rows) for rows in zip(*(_on_grid(x, y, grid, columns) for x, y in curves), strict=True)
    )
    counts = np.isfinite(middle).sum(axis=0)
    kept = counts >= min(2, len(curves))
    middle, low, high, counts = middle[:, kept], low[:, kept], high[:, kept], counts[kept]
    mean = np.nansum(middle, axis=0) / counts
    if kind == "min-max":
        return Band(grid[kept], mean, np.nanmin(low, axis=0), np.nanmax(high, axis=0), counts)
    squares = np.nansum((middle - mean) ** 2, axis=0)
    std = np.sqrt(squares / np.maximum(1, counts - 1))
    return Band(grid[kept], mean, mean - std, mean + std, counts)


def _on_grid(
    x: NumberArray, y: NumberArray, grid: NumberArray, columns: bool
) -> tuple[NumberArray, NumberArray, NumberArray]:
    """Returns mean, least and greatest value of a curve at each position; NaN outside of the curve."""
    first, last = x[0], x[-1]
    least = most = y
    if columns and len(x) > len(grid):
        begins = column_begins(x, len(grid))
        sizes = np.diff(np.append(begins, len(x)))
        x, y, least, most = (
            np.add.reduceat(x, begins) / sizes,
            np.add.reduceat(y, begins) / sizes,
            np.minimum.reduceat(y, begins),
            np.maximum.reduceat(y, begins),
        )
    outside = (grid < first) | (grid > last)
    return tuple(np.where(outside, np.nan, np.interp(grid, x, one)) for one in (y, least, most))  # type: ignore[return-value]
