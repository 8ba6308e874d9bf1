"""The mean of the curves of several runs, with a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots.point_reduction import WIDTH

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
    on_grid = _at_points
    if len(grid) > WIDTH:
        half = (grid[-1] - grid[0]) / WIDTH / 2
        grid, on_grid = np.linspace(grid[0] + half, grid[-1] - half, WIDTH), _in_columns
    middle, low, high = (
        np.stack(rows) for rows in zip(*(on_grid(x, y, grid) for x, y in curves), strict=True)
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


_Rows = tuple[NumberArray, NumberArray, NumberArray]
"""Mean, least and greatest value of a curve at each position; NaN outside of the curve."""


def _at_points(x: NumberArray, y: NumberArray, grid: NumberArray) -> _Rows:
    found = np.where((grid < x[0]) | (grid > x[-1]), np.nan, np.interp(grid, x, y))
    return found, found, found


def _in_columns(x: NumberArray, y: NumberArray, grid: NumberArray) -> _Rows:
    """Takes all points in the column around each position; a column without one is interpolated."""
    size = grid[1] - grid[0]
    places = np.clip(np.floor((x - grid[0]) / size + 0.5), 0, len(grid) - 1).astype(np.int64)
    columns, begins, counts = np.unique(places, return_index=True, return_counts=True)
    between = np.interp(grid, x, y)
    between[: columns[0]] = between[columns[-1] + 1 :] = np.nan
    rows = (
        np.add.reduceat(y, begins) / counts,
        np.minimum.reduceat(y, begins),
        np.maximum.reduceat(y, begins),
    )
    mean, least, most = (between.copy() for _ in rows)
    mean[columns], least[columns], most[columns] = rows
    return mean, least, most
