"""The content of a plot of system metrics: cards, processes and host over the time of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from roost.base.errors import UsageError
from roost.base.text.terminal_text import escape_control
from roost.base.text.word_list import join_names
from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots.plot_panels import PackageMarks, Panel, Picture, PlotCurve, run_looks
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.point_reduction import visible_points
from roost.operations.plots.x_axis import elapsed
from roost.package.package import PackageFolder
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemMetrics

SYSTEM_AXES = ("elapsed", "time")
USUAL = ("gpu/utilization", "gpu/memory_mb", "gpu/power", "session/cores", "session/memory_mb", "host/cpu")
"""The panels that are drawn if no metrics are named."""
_CARD = re.compile(r"(gpu)\d+/")
_MAX_GAPS = 5
"""Gaps that are named of one run."""


def build_system_picture(
    packages: Sequence[PackageFolder], names: Sequence[str] = (), *, view: PlotView
) -> Picture:
    """Sorts the system metrics of some packages into panels; all cards share those of one measurement.

    A curve goes through the means of its rows, a band from them to the peaks.

    Args:
        packages: One or several.
        names: Draw only these: ``gpu0/power``, ``gpu/power`` for all cards, or patterns. Empty: `USUAL`.
        view: Its ``x`` is one of `SYSTEM_AXES`; nothing else of it may be set.

    Raises:
        UsageError: Something else of the view is set.
    """
    if view.x not in SYSTEM_AXES or view != PlotView(x=view.x):
        fix = "leave out --log, --smooth, --group-by, --band; --x is elapsed or time"
        raise UsageError("draws system metrics over time only", setting="--system", fix=fix)
    found = [(package, system_metrics.read(package.path)) for package in packages]
    drawn = [(package, metrics) for package, metrics in found if metrics.sessions]
    left_out = [escape_control(package.path.name) for package, metrics in found if not metrics.sessions]
    labels, styles, legend, _ = run_looks([package for package, _ in drawn], view)
    by_dash = any(style.dash for style in styles)
    panels: dict[str, Panel] = {}
    known: dict[str, None] = {}
    for number, (package, metrics) in enumerate(drawn):
        for (node, name), (times, means, peaks) in _columns(metrics).items():
            known[name] = None
            shared = _CARD.sub(r"\1/", name)
            if not any(fnmatchcase(one, pattern) for one in (name, shared) for pattern in names or USUAL):
                continue
            own = f"node {node} {name}" if node else name
            panel = own if by_dash else shared
            split = own if by_dash or own == shared else own.rpartition("/")[0]
            x = elapsed(package, times) if view.x == "elapsed" else times
            curve = _curve(number, split, x, means, peaks)
            panels.setdefault(panel, Panel(panel)).curves.append(curve)
    marks = [
        PackageMarks(label, [], [], [], 0, style=style) for label, style in zip(labels, styles, strict=True)
    ]
    ordered = sorted(panels.values(), key=_order)
    return Picture(
        ordered, marks, left_out, list(known), view, legend, _gap_notes(drawn), band="up to the peak"
    )


_Column = tuple[NumberArray, NumberArray, NumberArray]
"""The times, means and peaks of the rows with a value."""


def _columns(metrics: SystemMetrics) -> dict[tuple[int, str], _Column]:
    """Returns the columns of all sessions together, by node and name."""
    found: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for one in metrics.sessions:
        for name in one.names:
            rows = zip(one.times, one.values[name], one.peaks[name], strict=True)
            found.setdefault((one.node, name), []).extend(
                (time, mean, mean if peak is None else peak) for time, mean, peak in rows if mean is not None
            )
    columns = {}
    for key, values in found.items():
        times, means, peaks = np.array(sorted(values), np.float64).T
        columns[key] = (times, means, peaks)
    return columns


def _curve(run: int, split: str, x: NumberArray, means: NumberArray, peaks: NumberArray) -> PlotCurve:
    places = np.union1d(visible_points(x, means), visible_points(x, peaks))
    y = means[places].tolist()
    band = (y, peaks[places].tolist()) if (peaks > means).any() else None
    return PlotCurve(run, split, "", x[places].tolist(), y, [], band=band)


def _gap_notes(drawn: Sequence[tuple[PackageFolder, SystemMetrics]]) -> list[str]:
    """Returns a line for each gap of one run, or one line about those of several."""
    gaps = [[gap for one in metrics.sessions for gap in one.gaps] for _, metrics in drawn]
    if len(drawn) == 1:
        lines = [f"not measured for {gap.end - gap.begin:.0f} s: {gap.reason}" for gap in gaps[0][:_MAX_GAPS]]
        if (more := len(gaps[0]) - _MAX_GAPS) > 0:
            lines.append(f"and {more} more gaps")
        name = escape_control(drawn[0][0].path.name)
        return [f"{name}: {line}" for line in lines]
    names = [
        escape_control(package.path.name) for (package, _), found in zip(drawn, gaps, strict=True) if found
    ]
    if not names:
        return []
    seconds = sum(gap.end - gap.begin for found in gaps for gap in found)
    have = "has gaps" if len(names) == 1 else "have gaps"
    reasons = Counter(gap.reason for found in gaps for gap in found)
    (reason, _), *others = reasons.most_common()
    why = f"mostly: {reason}" if others else reason
    return [f"{len(names)} of {len(drawn)} runs {have}, {seconds:.0f} s in all ({join_names(names)}): {why}"]


def _order(panel: Panel) -> tuple[int, str]:
    """Returns the sort key: the usual panels in their order, then the others."""
    shared = _CARD.sub(r"\1/", panel.name)
    return USUAL.index(shared) if shared in USUAL else len(USUAL), panel.name
