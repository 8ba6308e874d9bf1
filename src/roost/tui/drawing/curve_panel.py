"""A panel with curves as lines of text: braille dots, or letters where these cannot be shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from textual.strip import Strip

from roost.display.terminal_plots.axis_ticks import Axis, number_label
from roost.display.terminal_plots.text_canvas import BrailleCanvas, LetterCanvas, Pen, TextCanvas
from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.palette import Palette

_LABEL = 9
_MIN_WIDTH, _MIN_HEIGHT = 24, 5


class PanelCurve(NamedTuple):
    """A curve of a panel. ``y`` may have gaps, as NaN."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    """The number of its colour."""


class CurvePanel(NamedTuple):
    """Curves with common axes."""

    title: str
    curves: Sequence[PanelCurve]
    x_name: str = "step"


def can_draw(width: int, height: int) -> bool:
    """Whether a panel has room."""
    return width >= _MIN_WIDTH and height >= _MIN_HEIGHT


def draw(
    panel: CurvePanel, width: int, height: int, colours: Palette, *, unicode: bool, logarithmic: bool
) -> list[Strip]:
    """Returns the lines of a panel: title with the newest values, curves, axis, its labels."""
    inner, rows = width - _LABEL - 1, height - 3
    logarithmic = logarithmic and any(0 < y < math.inf for curve in panel.curves for y in curve.y)
    curves = [_finite(curve, logarithmic=logarithmic) for curve in panel.curves]
    x_axis = Axis.around([x for curve in curves for x in (*curve.x[:1], *curve.x[-1:])])
    y_axis = Axis.around([y for curve in curves for y in curve.y], logarithmic=logarithmic)
    letters = not unicode or (not colours.accent and len(curves) > 1)
    canvas: TextCanvas = LetterCanvas(inner, rows) if letters else BrailleCanvas(inner, rows)
    for number, curve in reversed(list(enumerate(curves))):
        code = _code(colours.curves[curve.colour % len(colours.curves)])
        points = [(x_axis.fraction(x), y_axis.fraction(y)) for x, y in zip(curve.x, curve.y, strict=True)]
        if len(points) == 1:  # a dash, as one dot is hardly seen
            (x, y), half = points[0], 1 / max(1, inner)
            points = [(max(0.0, x - half), y), (min(1.0, x + half), y)]
        canvas.line(points, Pen(number, code))
    faint = palette.style(colours.faint, attributes="" if colours.faint else "d")
    labels = {
        _row(y_axis.fraction(tick), rows): number_label(tick) for tick in y_axis.ticks(max(2, rows // 2))
    }
    lines = [_title(panel, curves, width, colours, letters=letters, logarithmic=logarithmic)]
    for number, row in enumerate(canvas.rows()):
        edge = "┤" if number in labels else "│"
        begin = Segment(f"{labels.get(number, ''):>{_LABEL}}{edge}", faint)
        lines.append(Strip.join([Strip([begin]), styled_text.ansi_strip(row)]))
    return [*lines, *_x_axis(x_axis, inner, panel.x_name, faint)]


def _finite(curve: PanelCurve, *, logarithmic: bool) -> PanelCurve:
    kept = [
        (x, y)
        for x, y in zip(curve.x, curve.y, strict=True)
        if math.isfinite(y) and math.isfinite(x) and (y > 0 or not logarithmic)
    ]
    return curve._replace(x=[x for x, _ in kept], y=[y for _, y in kept])


def _title(
    panel: CurvePanel, curves: Sequence[PanelCurve], width: int, colours: Palette, *, letters: bool,
    logarithmic: bool,
) -> Strip:  # fmt: skip
    from roost.tui.queue_cells import format_value

    title = styled_text.escape(panel.title) + (" (log)" if logarithmic else "")
    parts = [Segment(" " * (_LABEL + 1)), Segment(title, palette.style(colours.text, attributes="b"))]
    for number, curve in enumerate(curves):
        style = palette.style(colours.curves[curve.colour % len(colours.curves)])
        sample = "abcdefghijklmnopqrstuvwxyz"[number % 26] if letters else "━"
        name = f" {styled_text.escape(curve.name)}" if len(curves) > 1 else ""
        value = f" {format_value(curve.y[-1])}" if curve.y else " –"
        parts += [Segment(f"  {sample}{name}", style), Segment(value, palette.style(colours.text))]
    return Strip(parts).crop(0, width)


def _x_axis(axis: Axis, inner: int, name: str, faint: object) -> list[Strip]:
    line, labels = ["─"] * inner, [" "] * inner
    free = 0
    for tick in axis.ticks(max(2, inner // 10)):
        column = min(inner - 1, max(0, int(axis.fraction(tick) * inner)))
        text = number_label(tick)
        begin = max(0, min(inner - len(text), column - len(text) // 2))
        if begin < free or begin + len(text) > inner - len(name) - 2:
            continue
        line[column] = "┬"
        labels[begin : begin + len(text)] = text
        free = begin + len(text) + 2
    labels[max(0, inner - len(name)) :] = name[:inner]
    return [
        Strip([Segment(" " * _LABEL + "└" + "".join(line), faint)]),  # type: ignore[arg-type]
        Strip([Segment(" " * (_LABEL + 1) + "".join(labels), faint)]),  # type: ignore[arg-type]
    ]


def _row(fraction: float, rows: int) -> int:
    return rows - 1 - min(rows - 1, max(0, int(fraction * rows)))


def _code(colour: str) -> str:
    if not colour:
        return ""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"\x1b[38;2;{red};{green};{blue}m"
