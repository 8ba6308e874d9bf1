"""Draws settings against metrics with matplotlib: as points, or as lines through parallel axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots.curve_styles import PALETTE
from roost.operations.plots.picture_file import TEXT_COLOUR, label_text, picture_bytes
from roost.operations.plots.setting_points import SettingAxis, SettingPoints

_PANEL_INCHES = (4.2, 3.1)
_PARALLEL_INCHES = (1.9, 3.6)
"""Between two axes, and in height."""
_MAX_TICKS = 12
_MAX_LETTERS = 40
"""Of the categories below a panel; more are written askew."""
_MAX_COLUMNS = 3
_COLOURS = "viridis"
"""A colour map whose lightness rises evenly, for any colour vision."""


def draw_scatter(points: SettingPoints, kind: str) -> bytes:
    """Returns a picture with a panel for each metric and setting, as the bytes of a file of a kind: png, svg
    or pdf. Where runs share a value of a setting, their means are drawn, too."""
    pairs = [(key, metric) for metric in points.metrics for key in points.keys]
    columns = min(len(pairs), len(points.keys) if 1 < len(points.keys) <= _MAX_COLUMNS else _MAX_COLUMNS)
    rows = math.ceil(len(pairs) / columns)

    def draw(figure: Any) -> None:
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, (key, metric) in zip(grid, pairs, strict=False):
            _draw_points(axes, key, metric)
        for axes in grid[len(pairs) :]:
            axes.set_axis_off()

    return picture_bytes(draw, kind, _PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows)


def _draw_points(axes: Any, key: SettingAxis, metric: SettingAxis) -> None:
    x, y = np.array(key.positions), np.array(metric.positions)
    different, place = np.unique(x, return_inverse=True)
    if len(different) < len(x):
        means = np.bincount(place, weights=y) / np.bincount(place)
        look = {"marker": "_", "markersize": 28, "linewidth": 0} if key.categories else {"linewidth": 1.6}
        axes.plot(different, means, color=PALETTE[0], alpha=0.35, **look)
    axes.plot(x, y, "o", color=PALETTE[0], alpha=0.75, markersize=5, markeredgecolor="white")
    for side, axis in (("x", key), ("y", metric)):
        getattr(axes, f"set_{side}label")(label_text(axis.name))
        if axis.logarithmic:
            getattr(axes, f"set_{side}scale")("log")
        if axis.categories:
            places, labels = _category_ticks(axis)
            getattr(axes, f"set_{side}ticks")(places, labels)
        elif not axis.logarithmic and all(float(one).is_integer() for one in axis.positions):
            getattr(axes, f"{side}axis").get_major_locator().set_params(integer=True)
    if sum(map(len, key.categories)) > _MAX_LETTERS:
        axes.tick_params(axis="x", labelrotation=25)
    axes.margins(x=0.08, y=0.08)


def draw_parallel(points: SettingPoints, kind: str) -> bytes:
    """Returns a picture with a row for each metric: parallel axes of the settings and the metric, and a line
    for each run, in a colour by the metric; the bytes of a file as of `draw_scatter`."""
    axes_of_row = len(points.keys) + 1
    width = max(5.0, _PARALLEL_INCHES[0] * axes_of_row)

    def draw(figure: Any) -> None:
        rows = list(figure.subplots(len(points.metrics), 1, squeeze=False).flat)
        for axes, metric in zip(rows, points.metrics, strict=True):
            _draw_lines(axes, [*points.keys, metric])

    return picture_bytes(draw, kind, width, _PARALLEL_INCHES[1] * len(points.metrics))


def _draw_lines(axes: Any, axes_of_row: Sequence[SettingAxis]) -> None:
    import matplotlib as mpl
    from matplotlib.collections import LineCollection

    heights = [_heights(axis) for axis in axes_of_row]
    of_metric = heights[-1]
    colours = mpl.colormaps[_COLOURS](0.92 * of_metric)  # its end is too pale for a line on white
    lines = np.stack([np.stack([np.full(len(one), at), one], axis=-1) for at, one in enumerate(heights)], 1)
    width = 1.6 if len(of_metric) <= 50 else 0.8
    axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=width, alpha=0.85))
    axes.set_xlim(-0.1, len(axes_of_row) - 0.9)
    axes.set_ylim(-0.04, 1.04)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks(range(len(axes_of_row)), [label_text(axis.name) for axis in axes_of_row])
    axes.tick_params(axis="x", length=0, pad=6, labelcolor=TEXT_COLOUR)
    for at, axis in enumerate(axes_of_row):
        axes.axvline(at, color="#6b7280", linewidth=1.0, zorder=3)
        for height, label in _ticks(axis):
            axes.annotate(
                label, (at, height), xytext=(4 if at else -4, 0), textcoords="offset points", va="center",
                ha="left" if at else "right", fontsize=7, color=TEXT_COLOUR, zorder=4,
                bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip


def _heights(axis: SettingAxis) -> NumberArray:
    """Returns the places of runs on an axis from 0 to 1."""
    return _scale(axis, np.array(axis.positions))


def _scale(axis: SettingAxis, positions: NumberArray) -> NumberArray:
    low, high = min(axis.positions), max(axis.positions)
    if low == high:
        return np.full(len(positions), 0.5)
    if axis.logarithmic:
        found: NumberArray = np.log(positions / low) / np.log(high / low)
        return found
    return (positions / 2 - low / 2) / (high / 2 - low / 2)


def _ticks(axis: SettingAxis) -> list[tuple[float, str]]:
    """Returns places from 0 to 1 with labels: of categories all, of few different numbers these, else round
    numbers between the least and the greatest."""
    if axis.categories:
        places, labels = _category_ticks(axis)
        return list(zip(_scale(axis, np.array(places, np.float64)).tolist(), labels, strict=True))
    different = np.unique(axis.positions)
    if len(different) > _MAX_TICKS:
        from matplotlib.ticker import LogLocator, MaxNLocator

        locator = LogLocator() if axis.logarithmic else MaxNLocator(6)
        ticks = np.array(locator.tick_values(different[0], different[-1]))
        different = ticks[(ticks >= different[0]) & (ticks <= different[-1])]
    return list(zip(_scale(axis, different).tolist(), [f"{one:.4g}" for one in different], strict=True))


def _category_ticks(axis: SettingAxis) -> tuple[list[int], list[str]]:
    every = math.ceil(len(axis.categories) / (2 * _MAX_TICKS))
    places = list(range(0, len(axis.categories), every))
    return places, [label_text(axis.categories[at]) for at in places]
