"""A plot as text: its panels with axes, and the legend."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from roost.base.text.terminal_text import escape_control
from roost.display import terminal
from roost.display.terminal_plots.axis_ticks import Axis, number_label, time_label
from roost.display.terminal_plots.text_canvas import LETTERS, BrailleCanvas, LetterCanvas, Pen, TextCanvas
from roost.operations.plots.plot_panels import Panel, Picture, PlotCurve
from roost.operations.plots.setting_points import SettingPoints
from roost.operations.plots.x_axis import time_unit

_RICH_COLOURS = tuple(f"\x1b[38;5;{one}m" for one in (33, 202, 36, 175, 214, 117, 99, 161))
"""The palette of `roost.operations.plots.curve_styles`, light enough for a dark background."""
_BASIC_COLOURS = tuple(f"\x1b[{one}m" for one in (34, 31, 32, 35, 33, 36, 94, 91))
_FAINT, _RED, _RESET = "\x1b[2m", "\x1b[31m", "\x1b[0m"
_LABEL_WIDTH = 9
_MIN_PANEL_WIDTH = 60
_MIN_ROWS, _MAX_ROWS = 8, 22
_MOST_PANELS = 12
"""More are drawn only if metrics are named."""
_TICK_CELLS = 14
"""The least distance of ticks on the horizontal axis."""
_MAX_LABEL = 48


@dataclass(frozen=True)
class TextStyle:
    """The size, colours and characters that a terminal or file can show."""

    width: int
    height: int
    colours: Sequence[str]
    """Empty: none."""
    unicode: bool

    @classmethod
    def of_stream(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> TextStyle:
        """Returns what a stream can show. NO_COLOR and the stream's encoding are respected."""
        size = shutil.get_terminal_size()
        colours: Sequence[str] = ()
        if terminal.allows_colours(stream):
            is_rich = "256color" in environment.get("TERM", "") or "COLORTERM" in environment
            colours = _RICH_COLOURS if is_rich else _BASIC_COLOURS
        try:
            "⣿│".encode(stream.encoding or "ascii")
            unicode = True
        except (UnicodeEncodeError, LookupError):
            unicode = False
        return cls(max(_MIN_PANEL_WIDTH, min(size.columns, 200)), size.lines, colours, unicode)

    def encode(self, text: str, width: int = _MAX_LABEL) -> str:
        """Returns a label of at most so many characters, with what the stream cannot show as escapes."""
        line = escape_control(text.replace("\n", " ").replace("\t", " "))
        line = line if self.unicode else line.encode("ascii", "backslashreplace").decode()
        dots = "…" if self.unicode else "..."
        return line if len(line) <= width else line[: width - len(dots)] + dots


def plot_lines(picture: Picture, style: TextStyle, *, all_panels: bool = False) -> list[str]:
    """Returns the lines of a plot.

    Args:
        picture: The plot.
        style: What can be shown.
        all_panels: Whether more panels than a screen has are drawn; else the others are named.
    """
    letters = not style.unicode or (not style.colours and _num_looks(picture) > 1)
    shown = picture.panels if all_panels else picture.panels[:_MOST_PANELS]
    beside = max(1, min(style.width // _MIN_PANEL_WIDTH, len(shown)))
    width = style.width // beside - (beside > 1)
    legend = _legend(picture, style, letters)
    deep = -(-len(shown) // beside)
    rows = max(_MIN_ROWS, min(_MAX_ROWS, (style.height - len(legend) - 2) // max(1, min(deep, 2)) - 3))
    drawn = [_panel_lines(panel, picture, style, width, rows, letters) for panel in shown]
    lines: list[str] = []
    for at in range(0, len(drawn), beside):
        for cells in zip(*drawn[at : at + beside], strict=True):
            padded = [text + " " * (width + 1 - size) for text, size in cells]
            lines.append("".join(padded).rstrip())
    if len(picture.panels) > len(shown):
        rest = ", ".join(style.encode(panel.name) for panel in picture.panels[len(shown) :][:_MOST_PANELS])
        more = ", ..." if len(picture.panels) > len(shown) + _MOST_PANELS else ""
        lines.append(
            f"and {len(picture.panels) - len(shown)} more panels, drawn if named by -m: {rest}{more}"
        )
    return [*lines, *legend]


def _num_looks(picture: Picture) -> int:
    if not picture.is_of_one_run:
        return len(picture.runs)
    return len(_looks_of_one_run(picture))


def _looks_of_one_run(picture: Picture) -> list[str]:
    """Returns the splits, sets and further metrics that colours distinguish in the plot of one run."""
    found: dict[str, None] = {}
    for panel in picture.panels:
        names = [_curve_name(curve) for curve in panel.curves]
        if len(set(names)) > 1 or panel.curves[0].split in ("train", "valid", "test"):
            found |= dict.fromkeys(names)
    return list(found)


def _curve_name(curve: PlotCurve) -> str:
    return f"{curve.split}/{curve.part}" if curve.part else curve.split


def _pen(curve: PlotCurve, picture: Picture, style: TextStyle) -> Pen:
    if picture.is_of_one_run:
        looks = _looks_of_one_run(picture)
        name = _curve_name(curve)
        number = looks.index(name) if name in looks else 0
        dash = number // 8
    else:
        run = picture.runs[curve.run].style
        number, dash = run.colour, run.dash
    colour = style.colours[number % len(style.colours)] if style.colours else ""
    if picture.is_of_one_run:
        return Pen(number, colour, dash)
    if _is_paler(curve, picture):
        return Pen(curve.run, colour and colour + _FAINT, dash)
    return Pen(curve.run + len(LETTERS) // 2 * _has_paler(picture), colour, dash)


def _is_paler(curve: PlotCurve, picture: Picture) -> bool:
    """Whether a curve is of training and validations share its panel: with several runs it is faint, or has
    small letters."""
    return curve.split == "train" and _has_paler(picture)


def _has_paler(picture: Picture) -> bool:
    splits = [{curve.split for curve in panel.curves} for panel in picture.panels]
    return any({"train", "valid"} <= one for one in splits)


def _panel_lines(
    panel: Panel, picture: Picture, style: TextStyle, width: int, rows: int, letters: bool
) -> list[tuple[str, int]]:
    """Returns the lines of a panel, each with the cells that it takes."""
    inner = width - _LABEL_WIDTH - 2
    unit, kind = _x_unit(panel, picture)
    xs = [x for curve in panel.curves for x in (*curve.x[:1], *curve.x[-1:], *curve.gaps[-1:])]
    ys = [y for curve in panel.curves for y in curve.y]
    ys += [y for curve in panel.curves for edge in curve.band or () for y in edge]
    if panel.logarithmic:
        ys = [y for y in ys if y > 0]
    x_axis = Axis.around([x / unit for x in xs], logarithmic=picture.view.log_x)
    y_axis = Axis.around(ys, logarithmic=panel.logarithmic)
    canvas: TextCanvas = LetterCanvas(inner, rows) if letters else BrailleCanvas(inner, rows)
    for curve in _drawing_order(panel.curves):
        _draw_curve(canvas, curve, _pen(curve, picture, style), x_axis, y_axis, unit, style)
    title = style.encode(panel.name, inner - 7) + ("  (log)" if panel.logarithmic else "")
    lines = [(" " * (_LABEL_WIDTH + 2) + (f"\x1b[1m{title}{_RESET}" if style.colours else title),
              _LABEL_WIDTH + 2 + len(title))]  # fmt: skip
    lines += [(line, width) for line in _rows_with_labels(canvas, y_axis, rows, style)]
    return [*lines, *_x_axis_lines(x_axis, kind, inner, style)]


def _rows_with_labels(canvas: TextCanvas, y_axis: Axis, rows: int, style: TextStyle) -> list[str]:
    labels = {_row(y_axis.fraction(tick), rows): number_label(tick) for tick in y_axis.ticks(rows // 3)}
    lines = []
    for number, row in enumerate(canvas.rows()):
        edge = ("┤" if number in labels else "│") if style.unicode else "+" if number in labels else "|"
        lines.append(f"{labels.get(number, ''):>{_LABEL_WIDTH}} {edge}{row}")
    return lines


def _row(fraction: float, rows: int) -> int:
    return rows - 1 - min(rows - 1, max(0, int(fraction * rows)))


def _drawing_order(curves: Sequence[PlotCurve]) -> list[PlotCurve]:
    """Returns the curves with those of training below the others, which have fewer points."""
    return sorted(curves, key=lambda curve: curve.split in ("valid", "test"))


def _x_unit(panel: Panel, picture: Picture) -> tuple[float, str]:
    if picture.view.x != "elapsed":
        return 1.0, picture.view.x
    unit, name = time_unit(max((curve.x[-1] for curve in panel.curves if curve.x), default=0.0))
    return unit, {"seconds": "s", "minutes": "min", "hours": "h"}.get(name, name)


def _draw_curve(
    canvas: TextCanvas, curve: PlotCurve, pen: Pen, x_axis: Axis, y_axis: Axis, unit: float, style: TextStyle
) -> None:
    def points(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
        return [
            (x_axis.fraction(one / unit), y_axis.fraction(two))
            for one, two in zip(x, y, strict=True)
            if two > 0 or not y_axis.logarithmic
        ]

    faint = Pen(pen.style, pen.colour and pen.colour + _FAINT, pen.dash)
    if curve.raw is not None and style.colours:
        canvas.line(points(*curve.raw), faint)
    for edge in curve.band or ():
        if isinstance(canvas, BrailleCanvas):
            canvas.line(points(curve.x, edge), Pen(pen.style, faint.colour, 2))
    found = points(curve.x, curve.y)
    if curve.split == "test":
        for x, y in found:
            canvas.mark(x, y, "★" if style.unicode else "*", pen)
    else:
        canvas.line(found, faint if curve.before_fork else pen)
    for x in curve.gaps:
        canvas.mark(x_axis.fraction(x / unit), 1.0, "✗" if style.unicode else "X",
                    Pen(pen.style, _RED if style.colours else ""))  # fmt: skip
    for x in curve.below:
        canvas.mark(x_axis.fraction(x / unit), 0.0, "▼" if style.unicode else "v", pen)


def _x_axis_lines(
    axis: Axis, kind: str, inner: int, style: TextStyle, categories: Sequence[str] = ()
) -> list[tuple[str, int]]:
    """Returns the line of the axis and that of its labels: numbers, or the categories of positions 0, 1, …"""
    rule, tick, corner = ("─", "┬", "└") if style.unicode else ("-", "+", "+")
    line, labels = [rule] * inner, [" "] * inner
    free = 0
    ticks = range(len(categories)) if categories else axis.ticks(max(2, inner // _TICK_CELLS))
    for number in ticks:
        column = min(inner - 1, int(axis.fraction(number) * inner))
        text = time_label(number, axis.high - axis.low) if kind == "time" else number_label(number)
        text = style.encode(categories[int(number)]) if categories else text
        begin = max(0, min(inner - len(text), column - len(text) // 2))
        if begin < free or begin + len(text) > inner - len(kind) - 2:
            continue
        line[column] = tick
        labels[begin : begin + len(text)] = text
        free = begin + len(text) + 2
    labels[inner - len(kind) :] = kind
    width = _LABEL_WIDTH + 2 + inner
    return [(" " * (_LABEL_WIDTH + 1) + corner + "".join(line), width),
            (" " * (_LABEL_WIDTH + 2) + "".join(labels), width)]  # fmt: skip


def _legend(picture: Picture, style: TextStyle, letters: bool) -> list[str]:
    entries: list[tuple[str, int]] = []

    def add(sample: str, colour: str, label: str) -> None:
        text = style.encode(label)
        shown = f"{colour}{sample}{_RESET}" if colour else sample
        entries.append((f"{shown} {text}", len(sample) + 1 + len(text)))

    if picture.is_of_one_run:
        for number, name in enumerate(_looks_of_one_run(picture)):
            colour = style.colours[number % len(style.colours)] if style.colours else ""
            add(LETTERS[number % len(LETTERS)] if letters else _sample(0), colour, name)
    elif letters:
        for number, run in enumerate(picture.runs):
            colour = style.colours[run.style.colour % len(style.colours)] if style.colours else ""
            add(LETTERS[number % len(LETTERS)], colour, run.name)
    else:
        for key in picture.legend:
            colour = style.colours[key.colour % len(style.colours)] if key.colour is not None else ""
            add(_sample(key.dash), colour, key.label)
    if not picture.is_of_one_run and _has_paler(picture):
        if letters:
            add("a A", "", "train, others")
        else:
            add(_sample(0), _FAINT, "train")
    curves = [curve for panel in picture.panels for curve in panel.curves]
    if any(curve.split == "test" for curve in curves) and not picture.is_of_one_run:
        add("★" if style.unicode else "*", "", "test")
    if any(curve.gaps for curve in curves):
        add("✗" if style.unicode else "X", _RED if style.colours else "", "not finite")
    if any(curve.below for curve in curves):
        add("▼" if style.unicode else "v", "", "not above 0")
    if any(curve.band is not None for curve in curves) and not letters:
        add("⠒⠐⠂", "", picture.band)
    return _wrap(entries, style.width)


def _sample(dash: int) -> str:
    """Returns a piece of a line with a dash."""
    canvas = BrailleCanvas(3, 1)
    canvas.line([(0.0, 0.5), (1.0, 0.5)], Pen(0, "", dash))
    return canvas.rows()[0]


def _wrap(entries: Sequence[tuple[str, int]], width: int) -> list[str]:
    """Returns entries in columns of equal width."""
    if not entries:
        return []
    column = max(size for _, size in entries) + 3
    count = max(1, (width - 2) // column)
    cells = [text + " " * (column - size) for text, size in entries]
    return ["  " + "".join(cells[at : at + count]).rstrip() for at in range(0, len(cells), count)]


def print_plot(picture: Picture, *, all_panels: bool = False) -> None:
    """Prints a plot to stdout, as wide and high as the terminal."""
    style = TextStyle.of_stream(sys.stdout)
    sys.stdout.write("\n".join(plot_lines(picture, style, all_panels=all_panels)) + "\n")


def print_scatter(points: SettingPoints) -> None:
    """Prints a plot of settings against metrics to stdout."""
    style = TextStyle.of_stream(sys.stdout)
    sys.stdout.write("\n".join(scatter_lines(points, style)) + "\n")


def scatter_lines(points: SettingPoints, style: TextStyle) -> list[str]:
    """Returns the lines of a plot of settings against metrics, a panel for each two."""
    lines = []
    inner = style.width - _LABEL_WIDTH - 2
    rows = max(_MIN_ROWS, min(_MAX_ROWS, style.height - 6))
    for metric in points.metrics:
        for key in points.keys:
            x_axis = Axis.around(key.positions, logarithmic=key.logarithmic)
            y_axis = Axis.around(metric.positions, logarithmic=metric.logarithmic)
            canvas = LetterCanvas(inner, rows)
            pen = Pen(0, style.colours[0] if style.colours else "")
            for x, y in zip(key.positions, metric.positions, strict=True):
                canvas.mark(x_axis.fraction(x), y_axis.fraction(y), "●" if style.unicode else "o", pen)
            title = style.encode(f"{metric.name} by {key.name}", inner)
            lines.append(" " * (_LABEL_WIDTH + 2) + title)
            lines += _rows_with_labels(canvas, y_axis, rows, style)
            found = _x_axis_lines(x_axis, style.encode(key.name), inner, style, key.categories)
            lines += [text.rstrip() for text, _ in found]
    return lines
