"""Draws a plot with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from roost.operations.plots.curve_styles import PALETTE
from roost.operations.plots.picture_file import TEXT_COLOUR, label_text, picture_bytes
from roost.operations.plots.plot_panels import SPLITS, PackageMarks, Panel, Picture, PlotCurve
from roost.operations.plots.x_axis import time_unit

_NONFINITE_COLOUR, _MARK_COLOUR = "#dc2626", "#6b7280"
_PANEL_INCHES = (5.2, 3.1)
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
    (0, (4, 1.5)),
    (0, (1.2, 1.2)),
    (0, (7, 1.5, 1.2, 1.5)),
    (0, (8, 1.5, 2.5, 1.5, 2.5, 1.5)),
    (0, (1, 3)),
    (0, (6, 3)),
    (0, (3, 1, 1, 1, 1, 1)),
)
"""The first ones for runs (`curve_styles.NUM_DASHES`), all of them for sets."""
_MOST_MARKED_RUNS = 8
"""The marks of more runs would cover the axis."""
_MANY_RUNS = 8
"""With more of them, lines are thinner."""
_ALPHA_RAW, _ALPHA_BAND = 0.25, 0.18
_FEW_POINTS = 40
_LEGEND_INCHES, _LETTER_INCHES, _LINE_INCHES = 0.7, 0.075, 0.17
"""The size of the legend: per entry and per letter in width, per line in height."""
_MANY_ENTRIES = 12


def draw(picture: Picture, kind: str) -> bytes:
    """Returns the picture as the bytes of a file; ``kind`` is png, svg or pdf."""
    picture, x_label = _in_unit(picture)
    columns = min(len(picture.panels), 2 if len(picture.panels) <= 4 else 3)
    rows = math.ceil(len(picture.panels) / columns)
    width, height = _PANEL_INCHES
    entries = _legend_entries(picture)
    if len(picture.panels) == 1 and len(entries) > _MANY_ENTRIES:
        width, height = width * 1.8, height * 1.5  # a long legend in a single column hides the curves
    legend_columns = _legend_columns(entries, width * columns)
    below = 0.4 + _LINE_INCHES * math.ceil(len(entries) / legend_columns)

    def draw_panels(figure: Any) -> None:
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, panel in zip(grid, picture.panels, strict=False):
            _draw_panel(axes, panel, picture, x_label)
        for axes in grid[len(picture.panels) :]:
            axes.set_axis_off()
        figure.legend(handles=entries, loc="outside lower left", ncols=legend_columns)

    return picture_bytes(draw_panels, kind, width * columns, height * rows + below)


def _draw_panel(axes: Any, panel: Panel, picture: Picture, x_label: str) -> None:
    axes.set_title(label_text(panel.name))
    runs, parts = picture.runs, _panel_parts(picture, panel)
    for curve in panel.curves:
        colour = _curve_colour(curve, parts, picture)
        _draw_curve(axes, curve, colour, parts, picture)
    if panel.logarithmic:
        axes.set_yscale("log")
    axes.margins(x=0.02)
    axes.set_xlabel(x_label)
    if picture.view.log_x:
        axes.set_xscale("log")
    elif picture.view.x == "time":
        axes.xaxis_date(tz=datetime.now().astimezone().tzinfo)
    else:
        axes.set_xlim(left=0)
    last = max((step for run in runs for step in run.checkpoints), default=0)
    if last > axes.get_xlim()[1]:  # marks beyond the last point of a curve must be inside the axis
        axes.set_xlim(right=last * 1.02)
    if len(runs) <= _MOST_MARKED_RUNS:
        for run in runs:
            _draw_marks(axes, run, _MARK_COLOUR if picture.is_of_one_run else PALETTE[run.style.colour])
    if picture.view.x == "step" and not picture.view.log_x:
        _draw_epoch_axis(axes, runs)
        axes.xaxis.set_major_locator(_integer_locator())


def _in_unit(picture: Picture) -> tuple[Picture, str]:
    """Returns the picture with its positions in a readable unit, and the label of the axis."""
    kind = picture.view.x
    if kind not in ("time", "elapsed"):
        return picture, kind
    if kind == "time":
        unit, label = 86400.0, "time"  # matplotlib's dates are days since the epoch
    else:
        ends = (curve.x[-1] for panel in picture.panels for curve in panel.curves if curve.x)
        unit, name = time_unit(max(ends, default=0.0))
        label = f"{name} in sessions"

    def scaled(positions: list[float]) -> list[float]:
        return [one / unit for one in positions]

    panels = [
        replace(panel, curves=[
            replace(
                curve, x=scaled(curve.x), gaps=scaled(curve.gaps), below=scaled(curve.below),
                raw=None if curve.raw is None else (scaled(curve.raw[0]), curve.raw[1]),
            )
            for curve in panel.curves
        ])
        for panel in picture.panels
    ]  # fmt: skip
    runs = [
        replace(
            run, checkpoints=scaled(run.checkpoints), best=scaled(run.best),
            session_starts=scaled(run.session_starts),
            forked_at=None if run.forked_at is None else run.forked_at / unit,
        )
        for run in picture.runs
    ]  # fmt: skip
    return replace(picture, panels=panels, runs=runs), label


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


def _curve_colour(curve: PlotCurve, parts: Sequence[tuple[str, str]], picture: Picture) -> str:
    """Returns a colour. One package: one for each split, and for each set or average, equal in validation and
    test. Several packages: that of the package's style."""
    if not picture.is_of_one_run:
        return PALETTE[picture.runs[curve.run].style.colour]
    # A split with several sets only needs no colour of its own; the palette has eight.
    splits = [split for split in SPLITS if (split, "") in parts or not any(one == split for one, _ in parts)]
    known = list(dict.fromkeys([*splits, *(part or split for split, part in parts)]))
    return PALETTE[known.index(curve.part or curve.split) % len(PALETTE)]


def _draw_curve(
    axes: Any, curve: PlotCurve, colour: str, parts: Sequence[tuple[str, str]], picture: Picture
) -> None:
    look = dict(_SPLIT_STYLES.get(curve.split, {"linewidth": 1.4}))
    if len(picture.runs) > _MANY_RUNS and look["linewidth"]:
        look["linewidth"] *= 0.75
    if dash := picture.runs[curve.run].style.dash:
        look["linestyle"] = _LINE_STYLES[dash]
    if curve.part:
        look["linestyle"] = _line_style(curve, parts)
    if curve.split not in SPLITS and len(_other_metrics(parts)) > 1:
        look["linestyle"] = _LINE_STYLES[_other_metrics(parts).index(curve.split) % len(_LINE_STYLES)]
    if curve.split != "test" and len(curve.x) <= _FEW_POINTS and curve.raw is None:
        look |= {"marker": "o", "markersize": 3 if curve.split == "valid" else 2}
    if curve.before_fork:
        look["alpha"] = look.get("alpha", 1.0) * _ALPHA_BEFORE_FORK
    if curve.raw is not None:
        axes.plot(*curve.raw, color=colour, linewidth=look["linewidth"] * 0.7, alpha=_ALPHA_RAW, zorder=1.5)
        look["alpha"] = _ALPHA_BEFORE_FORK if curve.before_fork else 1.0
    if curve.band is not None:
        axes.fill_between(curve.x, *curve.band, color=colour, alpha=_ALPHA_BAND, linewidth=0)
        look["alpha"] = 1.0
    axes.plot(curve.x, curve.y, color=colour, **look)
    if curve.split == "test" and curve.y and not curve.before_fork:
        axes.axhline(curve.y[-1], color=colour, linewidth=0.8, linestyle=":", zorder=1)
    for positions, height, marker, mark_colour in (
        (curve.gaps, 0.98, "x", _NONFINITE_COLOUR),
        (curve.below, 0.02, "v", colour),
    ):
        if positions:
            axes.plot(
                positions,
                [height] * len(positions),
                marker,
                color=mark_colour,
                markersize=5,
                transform=axes.get_xaxis_transform(),
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
    """Draws checkpoints as ticks on the horizontal axis, the best as diamonds, session starts as dashed
    lines."""
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

    single = picture.is_of_one_run
    handles: list[Any] = []
    for label, key in zip(_unique_labels(picture), picture.legend, strict=True):
        colour = _MARK_COLOUR if key.colour is None else PALETTE[key.colour]
        look: dict[str, Any] = {"linestyle": _LINE_STYLES[key.dash], "linewidth": 1.8 if key.dash else 2.5}
        handles.append(Line2D([], [], color=colour, label=label, **look))
    curves = [curve for panel in picture.panels for curve in panel.curves]
    parts = _split_parts(picture)
    # Of several packages, the stars of a test have the colour of their package and no line: one entry
    # suffices.
    alike = () if single else ("test",)
    for split, part in dict.fromkeys((s, "" if s in alike else p) for s, p in parts):
        example = next(c for c in curves if c.split == split and (split in alike or c.part == part))
        colour = _curve_colour(example, parts, picture) if single else TEXT_COLOUR
        label = label_text(f"{split}/{part}" if part else split)
        look = {**_SPLIT_STYLES[split], **({"linestyle": _line_style(example, parts)} if part else {})}
        handles.append(Line2D([], [], color=colour, label=label, **look))
    return handles + _other_metric_entries(picture, single=single) + _mark_entries(picture, curves)


def _other_metric_entries(picture: Picture, *, single: bool) -> list[Any]:
    """Returns the entries of curves without a split, if several share a panel."""
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    for panel in picture.panels:
        parts = _panel_parts(picture, panel)
        others = _other_metrics(parts)
        for number, name in enumerate(others if len(others) > 1 else []):
            example = next(curve for curve in panel.curves if curve.split == name)
            colour = _curve_colour(example, parts, picture) if single else TEXT_COLOUR
            look: dict[str, Any] = {"linewidth": 1.4, "linestyle": _LINE_STYLES[number % len(_LINE_STYLES)]}
            handles.append(Line2D([], [], color=colour, label=label_text(name), **look))
    return handles


def _legend_columns(entries: Sequence[Any], inches: float) -> int:
    """Returns how many entries of the legend fit into one line."""
    longest = max((len(str(entry.get_label())) for entry in entries), default=0)
    return max(1, min(len(entries), int(inches / (_LEGEND_INCHES + _LETTER_INCHES * longest))))


def _unique_labels(picture: Picture) -> list[str]:
    """Returns the labels of the runs or groups; numbered if two of them are equal after shortening."""
    short = [label_text(key.label) for key in picture.legend]
    if len(set(short)) == len(short):
        return short
    return [f"{number}: {name}" for number, name in enumerate(short, 1)]


def _mark_entries(picture: Picture, curves: Sequence[PlotCurve]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey: dict[str, Any] = {"color": _MARK_COLOUR, "linewidth": 0}
    runs = picture.runs if len(picture.runs) <= _MOST_MARKED_RUNS else []
    marks = [
        (any(run.checkpoints for run in runs), {**grey, "marker": "|", "markersize": 9}, "checkpoint"),
        (any(run.best for run in runs), {**grey, "marker": "D", "markersize": 5}, "best checkpoint"),
        (
            any(run.session_starts for run in runs),
            {"color": _MARK_COLOUR, "linewidth": 0.9, "linestyle": (0, (4, 3))},
            "continued",
        ),
        (any(run.forked_at is not None for run in runs), {**grey, **_FORK_MARKER}, "forked, pale before"),
        (
            any(curve.raw is not None for curve in curves),
            {"color": _MARK_COLOUR, "linewidth": 0.9, "alpha": 0.5},
            f"before smoothing ({picture.view.smooth:g})",
        ),
        (
            any(curve.gaps for curve in curves),
            {"color": _NONFINITE_COLOUR, "linewidth": 0, "marker": "x", "markersize": 5},
            "not finite",
        ),
        (any(curve.below for curve in curves), {**grey, "marker": "v", "markersize": 5}, "not above 0"),
    ]
    found: list[Any] = [Line2D([], [], label=label, **look) for is_drawn, look, label in marks if is_drawn]
    if any(curve.band is not None for curve in curves):
        found.append(Patch(color=_MARK_COLOUR, alpha=_ALPHA_BAND, label=picture.band))
    return found
