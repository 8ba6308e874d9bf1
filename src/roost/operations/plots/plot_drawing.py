"""Draws a plot with matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import Any

from roost.base.text.terminal_text import escape_control
from roost.operations.plots.plot_panels import SPLITS, PackageMarks, Panel, Picture, PlotCurve

_PALETTE = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#db2777", "#0891b2", "#ca8a04", "#475569")
_TEXT_COLOUR, _NONFINITE_COLOUR = "#1f2937", "#dc2626"
_PANEL_INCHES = (5.2, 3.1)
_RC_PARAMS: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#9ca3af",
    "axes.labelcolor": _TEXT_COLOUR,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#eef0f3",
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "roost",
}
_SPLIT_STYLES: dict[str, dict[str, Any]] = {
    "train": {"linewidth": 1.0, "alpha": 0.55},
    "valid": {"linewidth": 1.8},
    "test": {"linewidth": 0, "marker": "*", "markersize": 11, "markeredgecolor": "white", "zorder": 4},
}
_ALPHA_BEFORE_FORK = 0.4
"""The opacity of the part of a curve before the fork, relative to the rest."""
_FORK_MARKER: dict[str, Any] = {"marker": 9, "markersize": 7, "markeredgecolor": "white", "linewidth": 0}
_LINE_STYLES: tuple[Any, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (1, 3)),
    (0, (6, 3)),
    (0, (4, 1, 1, 1, 1, 1, 1, 1)),
)
_FEW_POINTS = 40
_LEGEND_INCHES, _LETTER_INCHES, _LINE_INCHES = 0.6, 0.075, 0.17
"""The size of the legend: per entry and per letter in width, per line in height."""
_MAX_LABEL_LENGTH = 40


def draw(picture: Picture, kind: str) -> bytes:
    """Returns the picture as the bytes of a file; ``kind`` is png, svg or pdf."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(len(picture.panels), 2 if len(picture.panels) <= 4 else 3)
    rows = math.ceil(len(picture.panels) / columns)
    width, height = _PANEL_INCHES
    with mpl.rc_context(_RC_PARAMS), warnings.catch_warnings():
        # Characters that the font lacks (Chinese, emoji) are drawn as boxes; a warning would not help the
        # user.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        entries = _legend_entries(picture)
        legend_columns = _legend_columns(entries, width * columns)
        below = 0.4 + _LINE_INCHES * math.ceil(len(entries) / legend_columns)
        figure = Figure(figsize=(width * columns, height * rows + below), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, panel in zip(grid, picture.panels, strict=False):
            _draw_panel(axes, panel, picture)
        for axes in grid[len(picture.panels) :]:
            axes.set_axis_off()
        figure.legend(handles=entries, loc="outside lower left", ncols=legend_columns)
        buffer = io.BytesIO()
        canvas.print_figure(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def _draw_panel(axes: Any, panel: Panel, picture: Picture) -> None:
    axes.set_title(_label(panel.name))
    runs, parts = picture.runs, _panel_parts(picture, panel)
    for curve in panel.curves:
        _draw_curve(axes, curve, _curve_colour(curve, parts, single=len(runs) == 1), parts)
    if panel.logarithmic:
        axes.set_yscale("log")
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    last = max((step for run in runs for step in run.checkpoints), default=0)
    if last > axes.get_xlim()[1]:  # marks beyond the last point of a curve must be inside the axis
        axes.set_xlim(right=last * 1.02)
    for number, run in enumerate(runs):
        _draw_marks(axes, run, _PALETTE[number % len(_PALETTE)] if len(runs) > 1 else "#6b7280")
    _draw_epoch_axis(axes, runs)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(_integer_locator())


def _integer_locator() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=6, integer=True)


def _split_parts(picture: Picture) -> list[tuple[str, str]]:
    """Returns the (split, set or average) pairs of all panels, which share one legend."""
    found = {(curve.split, curve.part) for panel in picture.panels for curve in panel.curves}
    inside = [part for part in found if part[0] in SPLITS]
    return sorted(inside, key=lambda part: (SPLITS.index(part[0]), part[1]))


def _panel_parts(picture: Picture, panel: Panel) -> list[tuple[str, str]]:
    """Returns the (split, set) pairs of a panel that need a colour or line style."""
    others = {(curve.split, curve.part) for curve in panel.curves if curve.split not in SPLITS}
    return [*_split_parts(picture), *sorted(others)]


def _curve_colour(curve: PlotCurve, parts: Sequence[tuple[str, str]], *, single: bool) -> str:
    """Returns a colour. One package: one for each split, and for each set or average, equal in validation and
    test. Several packages: one for each package."""
    if not single:
        return _PALETTE[curve.run % len(_PALETTE)]
    # A split with several sets only needs no colour of its own; the palette has eight.
    splits = [split for split in SPLITS if (split, "") in parts or not any(one == split for one, _ in parts)]
    known = list(dict.fromkeys([*splits, *(part or split for split, part in parts)]))
    return _PALETTE[known.index(curve.part or curve.split) % len(_PALETTE)]


def _draw_curve(axes: Any, curve: PlotCurve, colour: str, parts: Sequence[tuple[str, str]]) -> None:
    look = dict(_SPLIT_STYLES.get(curve.split, {"linewidth": 1.4}))
    if curve.part:
        look["linestyle"] = _line_style(curve, parts)
    if curve.split not in SPLITS:
        look["linestyle"] = _LINE_STYLES[_other_metrics(parts).index(curve.split) % len(_LINE_STYLES)]
    if curve.split != "test" and len(curve.steps) <= _FEW_POINTS:
        look |= {"marker": "o", "markersize": 3 if curve.split == "valid" else 2}
    if curve.before_fork:
        look["alpha"] = look.get("alpha", 1.0) * _ALPHA_BEFORE_FORK
    axes.plot(curve.steps, curve.values, color=colour, **look)
    if curve.split == "test" and curve.values and not curve.before_fork:
        axes.axhline(curve.values[-1], color=colour, linewidth=0.8, linestyle=":", zorder=1)
    if curve.gaps:
        top = axes.get_xaxis_transform()
        axes.plot(
            curve.gaps,
            [0.98] * len(curve.gaps),
            "x",
            color=_NONFINITE_COLOUR,
            markersize=5,
            transform=top,
            clip_on=False,
        )


def _line_style(curve: PlotCurve, parts: Sequence[tuple[str, str]]) -> Any:
    """Returns the line style of one of several sets or averages."""
    sets = [part for split, part in parts if split == curve.split]
    return _LINE_STYLES[sets.index(curve.part) % len(_LINE_STYLES)]


def _other_metrics(parts: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the curves of a panel that have no split: ``lr`` and ``lr/head``."""
    return [split for split, _ in parts if split not in SPLITS]


def _draw_marks(axes: Any, run: PackageMarks, colour: str) -> None:
    """Draws checkpoints as ticks on the step axis, the best as diamonds, session starts as dashed lines."""
    on_axis = axes.get_xaxis_transform()
    for step in run.session_starts:
        axes.axvline(step, color=colour, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.7, zorder=1)
    axes.plot(
        run.checkpoints,
        [0.0] * len(run.checkpoints),
        "|",
        color=colour,
        markersize=9,
        transform=on_axis,
        zorder=5,
    )
    if run.forked_at is not None:
        axes.axvline(run.forked_at, color=colour, linewidth=0.9, linestyle=":", alpha=0.7, zorder=1)
        axes.plot(
            [run.forked_at], [1.0], color=colour, transform=on_axis, clip_on=False, zorder=6, **_FORK_MARKER
        )
    if not run.best:
        return  # an unclipped line without points has no extent, and breaks the layout of the figure
    axes.plot(
        run.best,
        [0.0] * len(run.best),
        "D",
        color=colour,
        markersize=5.5,
        markeredgecolor="white",
        transform=on_axis,
        clip_on=False,
        zorder=6,
    )


def _draw_epoch_axis(axes: Any, runs: Sequence[PackageMarks]) -> None:
    """Adds a second axis in epochs, if these have the same length in all packages."""
    lengths = {run.steps_per_epoch for run in runs}
    if len(lengths) != 1 or (length := lengths.pop()) < 1:
        return
    second = axes.secondary_xaxis("top", functions=(lambda step: step / length, lambda epoch: epoch * length))
    second.xaxis.set_major_locator(_integer_locator())
    second.tick_params(labelsize=7, length=2, pad=1)
    second.spines["top"].set_visible(False)
    second.set_xlabel("epoch", loc="right", fontsize=7, labelpad=1)


def _legend_entries(picture: Picture) -> list[Any]:
    """Returns the entries of the legend below all panels: colours, lines and marks."""
    from matplotlib.lines import Line2D

    single = len(picture.runs) == 1
    handles: list[Any] = []
    if not single:
        for number, name in enumerate(_package_labels(picture.runs)):
            handles.append(Line2D([], [], color=_PALETTE[number % len(_PALETTE)], linewidth=2.5, label=name))
    curves = [curve for panel in picture.panels for curve in panel.curves]
    parts = _split_parts(picture)
    # Of several packages, the stars of a test have the colour of their package and no line: one entry
    # suffices.
    alike = () if single else ("test",)
    for split, part in dict.fromkeys((s, "" if s in alike else p) for s, p in parts):
        example = next(c for c in curves if c.split == split and (split in alike or c.part == part))
        colour = _curve_colour(example, parts, single=True) if single else _TEXT_COLOUR
        label = _label(f"{split}/{part}" if part else split)
        look = {**_SPLIT_STYLES[split], **({"linestyle": _line_style(example, parts)} if part else {})}
        handles.append(Line2D([], [], color=colour, label=label, **look))
    return (
        handles
        + _other_metric_entries(picture, single=single)
        + _mark_entries(picture, any(c.gaps for c in curves))
    )


def _other_metric_entries(picture: Picture, *, single: bool) -> list[Any]:
    """Returns the entries of curves without a split, if several share a panel."""
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    for panel in picture.panels:
        parts = _panel_parts(picture, panel)
        others = _other_metrics(parts)
        for number, name in enumerate(others if len(others) > 1 else []):
            example = next(curve for curve in panel.curves if curve.split == name)
            colour = _curve_colour(example, parts, single=True) if single else _TEXT_COLOUR
            look: dict[str, Any] = {"linewidth": 1.4, "linestyle": _LINE_STYLES[number % len(_LINE_STYLES)]}
            handles.append(Line2D([], [], color=colour, label=_label(name), **look))
    return handles


def _legend_columns(entries: Sequence[Any], inches: float) -> int:
    """Returns how many entries of the legend fit into one line."""
    longest = max((len(str(entry.get_label())) for entry in entries), default=0)
    return max(1, min(len(entries), int(inches / (_LEGEND_INCHES + _LETTER_INCHES * longest))))


def _package_labels(runs: Sequence[PackageMarks]) -> list[str]:
    """Returns labels of the packages; numbered if two of them are equal after shortening."""
    short = [_label(run.name) for run in runs]
    if len(set(short)) == len(short):
        return short
    return [f"{number}: {name}" for number, name in enumerate(short, 1)]


def _label(name: str) -> str:
    """Returns a name as a label of limited length; a long name keeps its beginning and its end."""
    text = escape_control(name.replace("\n", " ").replace("\t", " "))
    if len(text) > _MAX_LABEL_LENGTH:
        half = _MAX_LABEL_LENGTH // 2
        text = f"{text[:half]}…{text[1 - half :]}"
    return text.replace("$", r"\$")  # matplotlib would parse it as mathematics


def _mark_entries(picture: Picture, has_gaps: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    grey: dict[str, Any] = {"color": "#6b7280", "linewidth": 0}
    marks = [
        (
            any(run.checkpoints for run in picture.runs),
            {**grey, "marker": "|", "markersize": 9},
            "checkpoint",
        ),
        (any(run.best for run in picture.runs), {**grey, "marker": "D", "markersize": 5}, "best checkpoint"),
        (
            any(run.session_starts for run in picture.runs),
            {"color": "#6b7280", "linewidth": 0.9, "linestyle": (0, (4, 3))},
            "continued",
        ),
        (
            any(run.forked_at is not None for run in picture.runs),
            {**grey, **_FORK_MARKER},
            "forked, pale before",
        ),
        (
            has_gaps,
            {"color": _NONFINITE_COLOUR, "linewidth": 0, "marker": "x", "markersize": 5},
            "not finite",
        ),
    ]
    return [Line2D([], [], label=label, **look) for is_drawn, look, label in marks if is_drawn]
