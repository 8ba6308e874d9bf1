"""The content of a plot: metrics sorted into panels, and the marks on the step axis. `plot_drawing` draws
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from roost.base.errors import UsageError
from roost.base.text.terminal_text import escape_control
from roost.operations.curves.record_columns import NumberArray
from roost.operations.plots import run_labels
from roost.operations.plots.curve_styles import MOST_STYLES, LegendKey, RunStyle, assign_styles
from roost.operations.plots.group_bands import mean_band
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.point_reduction import LARGEST, visible_points, visible_positions
from roost.operations.plots.recorded_run import RecordedRun
from roost.operations.plots.smoothing import smooth
from roost.package import lineage, live_progress
from roost.package.package import PackageFolder
from roost.package.records import PERF, STATS

SPLITS = ("train", "valid", "test")
MAX_PANELS = 400
"""Drawing takes about 0.1 s for each panel."""
_LOG_RATIO = 30.0
_AS_IT_IS = PlotView()
_BAND_LABELS = {"std": "± standard deviation", "min-max": "least to greatest value"}
"""What a band of each kind of `roost.operations.plots.plot_view.BANDS` shows."""
_FIRST_STYLE = RunStyle(0, 0)


@dataclass(frozen=True)
class PlotCurve:
    """The points of a metric of one run, or of the mean over a group of runs, as they are drawn: of a long
    curve the first, least, greatest and last ones in each column of pixels."""

    run: int
    """The index of the run or group in the picture's ``runs``."""
    split: str
    """train, valid or test; the whole name of the metric if it has no split."""
    part: str
    """The set, if the split has several; else empty."""
    x: list[float]
    """Positions on the axis, ascending."""
    y: list[float]
    """The finite values there, smoothed if that was requested."""
    gaps: list[float]
    """Positions of values that are not finite."""
    before_fork: bool = False
    """Whether these are the values before the fork, which the parent package computed."""
    raw: tuple[list[float], list[float]] | None = None
    """The points before they were smoothed."""
    band: tuple[list[float], list[float]] | None = None
    """The lower and the upper edge of the band around a mean."""
    counts: tuple[int, int] | None = None
    """Of a mean, the least and the greatest number of runs that it is of."""
    below: list[float] = field(default_factory=list)
    """Positions of values that have no place on a logarithmic axis, as they are not above 0."""


@dataclass
class Panel:
    """Curves that share an axis: one metric, in all splits and packages."""

    name: str
    curves: list[PlotCurve] = field(default_factory=list)
    logarithmic: bool = False
    """Whether the vertical axis is logarithmic."""


@dataclass(frozen=True)
class PackageMarks:
    """The marks of one run on the horizontal axis, and the look of its curves."""

    name: str
    checkpoints: list[float]
    """Positions of the checkpoints."""
    best: list[float]
    """Positions of the checkpoints of the best track."""
    session_starts: list[float]
    """Positions at which later sessions began."""
    steps_per_epoch: int
    """0 while unknown."""
    forked_at: float | None = None
    """The position at which it was forked from another package."""
    style: RunStyle = _FIRST_STYLE


@dataclass(frozen=True)
class Picture:
    """The whole content of a plot."""

    panels: list[Panel]
    runs: list[PackageMarks]
    left_out: list[str]
    """The names of packages that have recorded none of the metrics."""
    known: list[str]
    """The full names of all metrics of the packages."""
    view: PlotView = _AS_IT_IS
    legend: list[LegendKey] = field(default_factory=list)
    """The entries for runs or groups; empty for one run."""
    notes: list[str] = field(default_factory=list)
    """What the picture does not show as it was recorded."""
    last_step: int = 0
    band: str = _BAND_LABELS["std"]
    """What bands show."""

    @property
    def is_of_one_run(self) -> bool:
        """Whether colours distinguish splits and sets, not runs or groups."""
        return not self.legend and len(self.runs) < 2


class _Points(NamedTuple):
    """A curve with all its points."""

    run: int
    split: str
    part: str
    steps: NumberArray
    values: NumberArray
    """The finite values at the steps."""
    gaps: NumberArray
    """The steps of the others."""
    before_fork: bool = False


def build_picture(
    packages: Sequence[PackageFolder],
    names: Sequence[str] = (),
    *,
    view: PlotView = _AS_IT_IS,
    read: Callable[[PackageFolder, str], RecordedRun] = RecordedRun,
) -> Picture:
    """Sorts the records of some packages into panels, in the order of the first package, losses first.

    Points that a fork shares with its parent, or with another fork, are drawn once.

    Args:
        packages: One or several; several share the panels.
        names: Draw only these: full names, names of panels, or patterns of them. Empty: all metrics. Times
            and memory (``perf/…``) and statistics (``stats/…``) are drawn only if they are named.
        view: How curves are presented.
        read: Reads the records of a package, for a kind of axis.

    Raises:
        UsageError: There would be more than `MAX_PANELS` panels, or no package has the key of the groups.
    """
    runs: list[RecordedRun] = []
    left_out: list[str] = []
    notes: list[str] = []
    known: dict[str, None] = {}
    drawn: list[list[str]] = []
    for package in packages:
        run = read(package, view.x)
        known.update(dict.fromkeys(run.names))
        found = [name for name in run.names if is_drawn(name, names)]
        if found and not run.has_axis:
            notes.append(f"{escape_control(package.path.name)} is left out: it has recorded no {view.x}")
        elif not found:
            left_out.append(escape_control(package.path.name))
        else:
            runs.append(run)
            drawn.append(found)
    labels, styles, legend, groups = run_looks([run.package for run in runs], view)
    by_dash = any(style.dash for style in styles)
    metrics: dict[str, list[tuple[int, str]]] = {}
    for number, found in enumerate(drawn):
        for name in found:
            metrics.setdefault(_panel_name(name, by_dash=by_dash), []).append((number, name))
    if len(metrics) > MAX_PANELS:
        raise UsageError(
            f"{len(metrics):,} panels are too many for one picture, which has at most {MAX_PANELS}",
            setting="-m",
            fix=f"name some: -m {next(iter(metrics))!r}",
        )
    if len(labels) > MOST_STYLES:
        notes.append(f"{len(labels)} runs or settings share {MOST_STYLES} styles; --group-by draws means")
    panels, last_step = [], 0
    for panel_name, members in metrics.items():
        curves = [_read_points(number, name, runs[number], by_dash=by_dash) for number, name in members]
        last_step = max([last_step, *(int(one.steps[-1]) for one in curves if len(one.steps))])
        curves = curves if groups else _without_shared_points(curves, runs)
        panels.append(_present(panel_name, curves, runs, view, groups, notes))
    marks = (
        [PackageMarks(label, [], [], [], 0, style=style) for label, style in zip(labels, styles, strict=True)]
        if groups
        else [_package_marks(*one) for one in zip(runs, labels, styles, strict=True)]
    )
    notes = list(dict.fromkeys(notes))
    return Picture(
        sorted(panels, key=_panel_order), marks, left_out, list(known), view, legend, notes, last_step,
        band=_BAND_LABELS[view.band],
    )  # fmt: skip


def is_drawn(name: str, patterns: Sequence[str]) -> bool:
    """Whether a recorded name is drawn: one of the patterns matches it, or there are none and it is a
    metric."""
    return matches_any(name, patterns) if patterns else not name.startswith((PERF, STATS))


def run_looks(
    packages: Sequence[PackageFolder], view: PlotView
) -> tuple[list[str], list[RunStyle], list[LegendKey], list[int]]:
    """Returns labels and styles of the runs, or of their groups, the legend, and the group of each run; no
    groups without `PlotView.group_by`."""
    if view.group_by is None and len(packages) < 2:
        names = [escape_control(package.path.name) for package in packages]
        return names, [_FIRST_STYLE] * len(packages), [], []
    table = run_labels.read_table([package.path for package in packages])
    if view.group_by is None:
        each = run_labels.run_labels(table)
        styles, legend = assign_styles(each)
        return [one.text for one in each], styles, legend, []
    of_run = run_labels.group_labels(table, view.group_by)
    found = list(dict.fromkeys(of_run))
    styles, keys = assign_styles([run_labels.RunLabel(label, "") for label in found])
    counts = [of_run.count(label) for label in found]
    legend = [
        replace(key, label=f"{key.label}, {_number_of_runs(count)}")
        for key, count in zip(keys, counts, strict=False)
    ]
    return found, styles, legend, [found.index(label) for label in of_run]


def _number_of_runs(count: int) -> str:
    return "1 run" if count == 1 else f"mean of {count} runs"


def _panel_name(name: str, *, by_dash: bool) -> str:
    """Returns the panel of a recorded name. If dashes distinguish runs, each set and each metric without a
    split has a panel, as dashes cannot distinguish them."""
    split, part, metric = split_name(name)
    if not by_dash:
        return metric
    return f"{part}/{metric}" if part else metric if split in SPLITS else name


def _read_points(number: int, name: str, run: RecordedRun, *, by_dash: bool) -> _Points:
    split, part, _ = split_name(name)
    steps, values = run.series(name)
    is_finite = np.abs(values) <= LARGEST
    if is_finite.all():
        return _Points(number, split, "" if by_dash else part, steps, values, steps[:0])
    return _Points(
        number, split, "" if by_dash else part, steps[is_finite], values[is_finite], steps[~is_finite]
    )


# --- forks ------------------------------------------------------------------------------------------------


def _without_shared_points(curves: Sequence[_Points], runs: Sequence[RecordedRun]) -> list[_Points]:
    """Splits the curves of forks at the fork, and leaves out the points that another curve has too."""
    if all(run.forked_at is None for run in runs):
        return list(curves)
    depths = [len(lineage.ancestry(run.package)) for run in runs]
    found: list[_Points] = []
    for curve in sorted(curves, key=lambda curve: (depths[curve.run], curve.run)):
        step = runs[curve.run].forked_at
        if step is None:
            found.append(curve)
            continue
        others = [one for one in curves if (one.split, one.part) == (curve.split, curve.part)]
        shown = [one for one in others if (depths[one.run], one.run) < (depths[curve.run], curve.run)]
        found += _split_at_fork(
            curve, step, since=max((_num_shared_points(curve, one, step) for one in shown), default=0)
        )
    return sorted(found, key=lambda curve: curve.run)


def _num_shared_points(curve: _Points, other: _Points, step: int) -> int:
    """Returns the number of points, up to a step, that are equal at the beginning of two curves."""
    most = min(int(np.searchsorted(curve.steps, step, side="right")), len(other.steps))
    differs = (curve.steps[:most] != other.steps[:most]) | (curve.values[:most] != other.values[:most])
    return int(differs.argmax()) if differs.any() else most


def _split_at_fork(curve: _Points, step: int, *, since: int) -> Iterator[_Points]:
    """Splits the curve of a fork: the part before the fork, from point number ``since`` on, and its own part.
    Each begins with the last point of the curve before it, so that the line has no gap."""
    own = int(np.searchsorted(curve.steps, step, side="right"))
    first = curve.steps[since - 1] if since else -1
    for begin, end, low, high in ((since, own, first, step), (own, len(curve.steps), step, np.inf)):
        gaps = curve.gaps[(low < curve.gaps) & (curve.gaps <= high)]
        points = slice(max(0, begin - (curve.split != "test")), end)  # tests are drawn without a line
        if begin < end or len(gaps):
            yield curve._replace(
                steps=curve.steps[points], values=curve.values[points], gaps=gaps, before_fork=high == step
            )


# --- presentation -----------------------------------------------------------------------------------------


def _present(
    name: str,
    curves: Sequence[_Points],
    runs: Sequence[RecordedRun],
    view: PlotView,
    groups: Sequence[int],
    notes: list[str],
) -> Panel:
    """Returns the panel of some curves: smoothed, averaged over groups, on its axes and reduced to what a
    picture can show."""
    log_y = _is_logarithmic(name, curves) if view.log is None else "y" in view.log
    kept = []
    for curve in curves:
        x, y = runs[curve.run].positions(curve.steps), curve.values
        gaps = visible_positions(runs[curve.run].positions(curve.gaps))
        is_below = (y <= 0) & log_y
        is_left = (x <= 0) & view.log_x
        if is_left.any():
            notes.append(f"{name}: {view.x} 0 has no place on a logarithmic axis")
        kept.append((curve, x, y, gaps, is_below, is_left))
    if groups:
        drawn = _group_means(name, kept, view, groups, notes)
    else:
        drawn = [_reduce(*one, view) for one in kept]
    if num_below := sum(int(one[4].sum()) for one in kept):
        what = "1 value is" if num_below == 1 else f"{num_below:,} values are"
        notes.append(f"{name}: {what} not above 0: marked at the lower edge of the logarithmic axis")
    return Panel(name, drawn, log_y)


def _is_logarithmic(name: str, curves: Sequence[_Points]) -> bool:
    """Whether the axis is logarithmic where that was not requested: a loss that falls by orders of magnitude
    is unreadable on a linear one."""
    values = [curve.values for curve in curves if len(curve.values)]
    if not name.endswith("loss") or not values:
        return False
    least, most = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
    return least > 0 and most / least > _LOG_RATIO


_Placed = tuple[_Points, NumberArray, NumberArray, NumberArray, NumberArray, NumberArray]


def _reduce(
    curve: _Points,
    x: NumberArray,
    y: NumberArray,
    gaps: NumberArray,
    is_below: NumberArray,
    is_left: NumberArray,
    view: PlotView,
) -> PlotCurve:
    """Returns the visible points of one curve."""
    shown = ~(is_below | is_left)
    below = visible_positions(x[is_below & ~is_left]).tolist()
    x, y = x[shown], y[shown]
    raw = None
    if view.smooth and curve.split != "test" and len(y):
        raw = _visible(x, y)
        y = smooth(y, view.smooth)
    drawn = PlotCurve(
        curve.run, curve.split, curve.part, *_visible(x, y), gaps.tolist(), curve.before_fork, raw=raw
    )
    return replace(drawn, below=below)


def _visible(x: NumberArray, y: NumberArray) -> tuple[list[float], list[float]]:
    places = visible_points(x, y)
    return x[places].tolist(), y[places].tolist()


def _group_means(
    name: str, curves: Sequence[_Placed], view: PlotView, groups: Sequence[int], notes: list[str]
) -> list[PlotCurve]:
    """Returns the mean curve of each group, split and set."""
    by_group: dict[tuple[int, str, str], list[_Placed]] = {}
    for one in curves:
        by_group.setdefault((groups[one[0].run], one[0].split, one[0].part), []).append(one)
    means = []
    for (group, split, part), members in by_group.items():
        below = np.sort(np.concatenate([x[is_below & ~is_left] for _, x, _, _, is_below, is_left in members]))
        gaps = visible_positions(np.sort(np.concatenate([one[3] for one in members])))
        points = []
        for _, x, y, _, is_below, is_left in members:
            shown = ~(is_below | is_left)
            if shown.any():
                points.append(
                    (x[shown], smooth(y[shown], view.smooth) if view.smooth and split != "test" else y[shown])
                )
        found = PlotCurve(group, split, part, [], [], gaps.tolist(), below=visible_positions(below).tolist())
        if points:
            band = mean_band(points, view.band)
            edges = (band.low.tolist(), band.high.tolist())
            least, most = (int(band.counts.min()), int(band.counts.max())) if len(band.counts) else (0, 0)
            found = replace(
                found, x=band.x.tolist(), y=band.mean.tolist(), band=edges if most > 1 else None,
                counts=(least, most),
            )  # fmt: skip
            if least < len(points):
                notes.append(
                    f"{split}/{name}: a mean is of {least} to {len(points)} runs, as not all have values "
                    f"everywhere; it ends where fewer than two have"
                )
        means.append(found)
    return means


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (``loss``, ``valid/*``, ``perf/*_ms``) matches the recorded ``name``."""
    candidates = (name, split_name(name)[2])
    return any(
        pattern in candidates or any(fnmatchcase(one, pattern) for one in candidates) for pattern in patterns
    )


def with_groups(names: Iterable[str]) -> list[str]:
    """Returns recorded names, and the patterns of those with a common beginning, such as ``valid/*``."""
    known = sorted(names)
    return [*known, *dict.fromkeys(f"{one.partition('/')[0]}/*" for one in known if "/" in one)]


def split_name(name: str) -> tuple[str, str, str]:
    """Returns (split, set, metric): for ``valid/noisy/loss`` ("valid", "noisy", "loss"); for ``lr`` ("lr",
    "", "lr")."""
    split, slash, rest = name.partition("/")
    if name.startswith(PERF):
        return name, "", name  # milliseconds, megabytes: each has its own axis
    if name.startswith(STATS):  # all parameters share an axis; their total has another
        kind, slash, _ = rest.partition("/")
        return name, "", f"{STATS}{kind}{slash and '/*'}"
    if split not in SPLITS or not slash:
        return name, "", name.partition("/")[0]
    part, _, metric = rest.rpartition("/")
    return split, part, metric


def _panel_order(panel: Panel) -> tuple[int, str]:
    """Returns the sort key: losses, then validated metrics, then training metrics, then others (lr)."""
    splits = {curve.split for curve in panel.curves}
    kind = 0 if panel.name == "loss" else 1 if splits & {"valid", "test"} else 2 if "train" in splits else 3
    return kind, panel.name


def _package_marks(run: RecordedRun, label: str, style: RunStyle) -> PackageMarks:
    package, at = run.package, run.step_positions
    line = package.store().lineage() if package.checkpoints.is_dir() else []
    best = set(package.derived.get("ckpt_best", []))
    progress = live_progress.read(package.progress)
    # The first session of a fork begins at the fork, which has its own mark.
    starts = [step for number, step in run.starts if step and (number > 1 or run.forked_at is None)]
    return PackageMarks(
        name=label,
        checkpoints=at([info.step for info in line]),
        best=at([info.step for info in line if info.id in best]),
        session_starts=at(starts),
        forked_at=None if run.forked_at is None else at([run.forked_at])[0],
        steps_per_epoch=progress.steps_per_epoch if progress else 0,
        style=style,
    )
