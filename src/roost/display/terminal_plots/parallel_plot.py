"""Parallel axes of settings and a metric as text: a line for each run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from roost.display.terminal_plots.axis_ticks import Axis, number_label
from roost.display.terminal_plots.terminal_plot import TextStyle
from roost.display.terminal_plots.text_canvas import LETTERS, BrailleCanvas, LetterCanvas, Pen, TextCanvas
from roost.operations.plots.setting_points import SettingAxis, SettingPoints

_RICH_SCALE = tuple(f"\x1b[38;5;{one}m" for one in (63, 69, 38, 36, 35, 71, 107, 149, 184))
"""From the least value of the metric to the greatest: violet, blue, green, yellow."""
_BASIC_SCALE = tuple(f"\x1b[{one}m" for one in (35, 34, 36, 32, 33))
_MIN_DISTANCE = 14
"""The least cells between two axes; more axes than fit continue below."""
_MARGIN = 10
"""The cells right of the last axis, for its labels."""
_MIN_ROWS, _MAX_ROWS = 8, 22
_MAX_TICKS = 8
"""The most different numbers that are all labelled."""


def print_parallel(points: SettingPoints) -> None:
    """Prints the parallel axes to stdout, as wide and high as the terminal."""
    style = TextStyle.of_stream(sys.stdout)
    sys.stdout.write("\n".join(parallel_lines(points, style)) + "\n")


def parallel_lines(points: SettingPoints, style: TextStyle) -> list[str]:
    """Returns the lines of a plot for each metric: an axis for each setting, the metric at the right end.

    The colour of a run follows its metric. Without colours or Unicode a run is a letter, and a legend names
    the runs by their metric, the first 52; others share letters."""
    letters = not style.unicode or not style.colours
    most = max(1, (style.width - _MARGIN) // _MIN_DISTANCE)
    rows = max(_MIN_ROWS, min(_MAX_ROWS, style.height - 5))
    lines: list[str] = []
    for metric in points.metrics:
        ranks = _ranks(metric)
        for at in range(0, len(points.keys), most):
            lines += _block(points.keys[at : at + most], metric, ranks, style, rows, letters)
        if letters:
            lines += _legend(points.runs, metric, ranks, style)
    return lines


def _ranks(metric: SettingAxis) -> list[int]:
    """Returns the runs in the order of the metric, as positions."""
    return sorted(range(len(metric.positions)), key=metric.positions.__getitem__)


def _block(
    keys: Sequence[SettingAxis],
    metric: SettingAxis,
    ranks: Sequence[int],
    style: TextStyle,
    rows: int,
    letters: bool,
) -> list[str]:
    """Returns the lines of some settings and the metric."""
    drawn = [*keys, metric]
    axes = [Axis.around(one.positions, logarithmic=one.logarithmic) for one in drawn]
    distance = (style.width - _MARGIN) // len(keys)
    columns = [at * distance for at in range(len(drawn))]
    canvas: TextCanvas = LetterCanvas(style.width, rows) if letters else BrailleCanvas(style.width, rows)

    def place(column: int, height: float) -> tuple[float, float]:
        return (column + 0.5) / style.width, height

    for rank, run in enumerate(ranks):
        pen = Pen(rank, _colour(axes[-1].fraction(metric.positions[run]), style))
        canvas.line(
            [
                place(column, axis.fraction(one.positions[run]))
                for column, axis, one in zip(columns, axes, drawn, strict=True)
            ],
            pen,
        )
    for column, axis, one in zip(columns, axes, drawn, strict=True):
        _mark_axis(canvas, column, axis, one, rows, style)
    names = [style.encode(one.name, distance - 2) for one in keys]
    last = style.encode(metric.name, max(_MARGIN, distance - 2))
    # Only the metric's name is longer than its place: it ends with the line, as few names fit ten cells.
    heading = "".join(name.ljust(distance) for name in names)
    heading = heading[: style.width - len(last)] + last
    return [*(row.rstrip() for row in canvas.rows()), heading]


def _mark_axis(
    canvas: TextCanvas, column: int, axis: Axis, setting: SettingAxis, rows: int, style: TextStyle
) -> None:
    """Draws the line of an axis with the labels of its ticks, above the lines of the runs."""
    ticks = {}
    for number, label in reversed(_ticks(axis, setting, rows)):
        text = style.encode(label, _MARGIN - 1)
        ticks[min(rows - 1, max(0, int(axis.fraction(number) * rows)))] = text
    for row in range(rows):
        text = ticks.get(row, "")
        line = ("├" if text else "│") if style.unicode else "+" if text else "|"
        for at, character in enumerate(line + text):
            canvas.mark((column + at + 0.5) / style.width, (row + 0.5) / rows, character, Pen(0, ""))


def _ticks(axis: Axis, setting: SettingAxis, rows: int) -> list[tuple[float, str]]:
    """Returns the positions with labels: of categories all, of few different numbers these, else round
    numbers."""
    if setting.categories:
        return [(float(at), label) for at, label in enumerate(setting.categories)]
    different = sorted(set(setting.positions))
    numbers = different if len(different) <= _MAX_TICKS else axis.ticks(rows // 3)
    return [(one, number_label(one)) for one in numbers]


def _colour(fraction: float, style: TextStyle) -> str:
    if not style.colours:
        return ""
    scale = _RICH_SCALE if "38;5" in style.colours[0] else _BASIC_SCALE
    return scale[min(len(scale) - 1, max(0, int(fraction * len(scale))))]


def _legend(runs: Sequence[str], metric: SettingAxis, ranks: Sequence[int], style: TextStyle) -> list[str]:
    """Returns the letters of the runs, in the order of the metric."""
    hidden = len(ranks) - len(LETTERS)
    lines = []
    for rank, run in enumerate(ranks[: len(LETTERS)]):
        value = number_label(metric.positions[run])
        lines.append(f"  {LETTERS[rank]} {value:>9}  {style.encode(runs[run])}")
    return [*lines, f"  and {hidden} more runs"] if hidden > 0 else lines
