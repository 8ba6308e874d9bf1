"""The curves of a run as a small SVG, for the cell of a notebook: of a run of any length a few kilobytes."""

from __future__ import annotations

import html
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np

from roost.base.text.terminal_text import escape_control
from roost.display import terminal
from roost.operations.plots.curve_styles import PALETTE
from roost.operations.plots.plot_panels import SPLITS, Panel, Picture, PlotCurve
from roost.operations.plots.point_reduction import visible_points

_WIDTH, _HEIGHT = 350, 170
"""Of a panel, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 8, 22, 18
"""On the left there is room for -0.000123."""
_MAX_PANELS, _MAX_CURVES, _MAX_NAME = 4, 5, 26
_TITLE_CHARACTERS = 42
"""So many fit above a panel: its name, and its curves with their newest values."""
_COLUMNS = 80
"""Columns of a curve, each with at most four points."""
_GREY = "#888"
"""Readable on a white and on a dark page; an image does not know the page's colours."""


def chart_image(picture: Picture) -> str:
    """Returns an ``<img>`` with the first panels of a picture; empty without a panel. Notebooks show an image
    also where they do not trust the notebook, and no script runs in one."""
    shown = [panel for panel in picture.panels if any(curve.x for curve in panel.curves)][:_MAX_PANELS]
    if not shown:
        return ""
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    width, height = columns * _WIDTH, rows * _HEIGHT
    places = [(at % columns * _WIDTH, at // columns * _HEIGHT) for at in range(len(shown))]
    drawn = "".join(
        f"<g transform='translate({x},{y})'>{_draw_panel(panel)}</g>"
        for (x, y), panel in zip(places, shown, strict=True)
    )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"font-family='sans-serif' font-size='11' fill='{_GREY}'>{drawn}</svg>"
    )
    names = ", ".join(html.escape(_short(panel.name)) for panel in shown)
    data = quote(svg, safe=" '=:/,.;()-")
    return f'<img alt="curves: {names}" width="{width}" height="{height}" src="data:image/svg+xml,{data}">'


def _draw_panel(panel: Panel) -> str:
    curves = [curve for curve in panel.curves if curve.x][:_MAX_CURVES]
    low_x, high_x = min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)
    low, high = min(min(curve.y) for curve in curves), max(max(curve.y) for curve in curves)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    frame = f"<path d='M{_LEFT} {_TOP}V{bottom}H{right}' fill='none' stroke='{_GREY}' stroke-opacity='.6'/>"
    labels = [
        _text(_LEFT - 4, _TOP + 8, f"{high:.3g}", anchor="end"),
        _text(_LEFT - 4, bottom, f"{low:.3g}", anchor="end"),
        _text(_LEFT, bottom + 13, f"{low_x:,.10g}"),
        _text(right, bottom + 13, f"{high_x:,.10g}", anchor="end"),
    ]
    x_scale = _Scale(low_x, high_x, _LEFT, right, logarithmic=False)
    y_scale = _Scale(low, high, bottom, _TOP, logarithmic=panel.logarithmic)
    legend, lines, free = [], [], _TITLE_CHARACTERS - len(_short(panel.name))
    for number, curve in enumerate(curves):
        colour = _colour(curve, number)
        name = "/".join(filter(None, [curve.split if curve.split != panel.name else "", curve.part]))
        last = f"{_short(name)} {terminal.format_number(curve.y[-1])}".strip()
        free -= len(last) + 1
        legend.append(f"<tspan fill='{colour}' dx='8'>{html.escape(last if free >= 0 else '…')}</tspan>")
        lines.append(_draw_curve(curve, colour, x_scale, y_scale))
    title = f"<text x='{_LEFT}' y='14'>{html.escape(_short(panel.name))}{''.join(legend)}</text>"
    return "".join([frame, *labels, title, *lines])


class _Scale:
    """Maps values to pixels."""

    def __init__(self, low: float, high: float, begin: float, end: float, *, logarithmic: bool) -> None:
        self._is_log = logarithmic and low > 0
        self._low, high = (float(np.log(low)), float(np.log(high))) if self._is_log else (low, high)
        self._begin = begin
        self._factor = (end - begin) / (high - self._low) if high > self._low else 0.0
        if not self._factor:
            self._begin = (begin + end) / 2

    def __call__(self, values: Sequence[float]) -> list[str]:
        numbers = np.asarray(values, float)
        numbers = np.log(numbers) if self._is_log else numbers
        return [f"{one:.4g}" for one in self._begin + (numbers - self._low) * self._factor]


def _draw_curve(curve: PlotCurve, colour: str, x_scale: _Scale, y_scale: _Scale) -> str:
    x, y = np.array(curve.x), np.array(curve.y)
    places = visible_points(x, y, _COLUMNS)
    points = list(zip(x_scale(x[places].tolist()), y_scale(y[places].tolist()), strict=True))
    if len(points) == 1 or curve.split == "test":
        return "".join(f"<circle cx='{at}' cy='{value}' r='3' fill='{colour}'/>" for at, value in points)
    path = " ".join(f"{at},{value}" for at, value in dict.fromkeys(points))
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>"


def _colour(curve: PlotCurve, number: int) -> str:
    if curve.split in SPLITS and not curve.part:
        return PALETTE[SPLITS.index(curve.split)]
    return PALETTE[number % len(PALETTE)]


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f"<text x='{x}' y='{y}' text-anchor='{anchor}'>{html.escape(text)}</text>"


def _short(name: str) -> str:
    shown = escape_control(name)
    return shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…"
