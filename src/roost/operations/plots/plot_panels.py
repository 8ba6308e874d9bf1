"""The content of a plot: metrics sorted into panels, and the marks on the step axis. `plot_drawing` draws
it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from roost.package import lineage, live_progress
from roost.package.package import PackageFolder
from roost.package.records import PERF, STATS, Columns

SPLITS = ("train", "valid", "test")
_LOG_RATIO = 30.0


@dataclass(frozen=True)
class PlotCurve:
    """A metric of one package. ``gaps`` are the steps with a non-finite value."""

    run: int
    """The index of the package in the picture's ``runs``."""
    split: str
    """train, valid or test; the whole name of the metric if it has no split."""
    part: str
    """The set, if the split has several; else empty."""
    steps: list[int]
    values: list[float]
    gaps: list[int]
    before_fork: bool = False
    """Whether these are the values before the fork, which the parent package computed."""


@dataclass
class Panel:
    """Curves that share an axis: one metric, in all splits and packages."""

    name: str
    curves: list[PlotCurve] = field(default_factory=list)

    @property
    def logarithmic(self) -> bool:
        """Whether the axis is logarithmic: a loss that falls by orders of magnitude is unreadable on a linear
        one."""
        values = [value for curve in self.curves for value in curve.values]
        return (
            self.name.endswith("loss")
            and bool(values)
            and min(values) > 0
            and max(values) / min(values) > _LOG_RATIO
        )


@dataclass(frozen=True)
class PackageMarks:
    """The marks of one package on the step axis."""

    name: str
    checkpoints: list[int]
    """Steps of the checkpoints."""
    best: list[int]
    """Steps of the checkpoints of the best track."""
    session_starts: list[int]
    """Steps at which later sessions began."""
    steps_per_epoch: int
    """0 while unknown."""
    forked_at: int | None = None
    """The step at which it was forked from another package."""


@dataclass(frozen=True)
class Picture:
    """The whole content of a plot."""

    panels: list[Panel]
    runs: list[PackageMarks]
    left_out: list[str]
    """The names of packages that have recorded none of the metrics."""
    known: list[str]
    """The full names of all metrics of the packages."""


def build_picture(
    packages: Sequence[PackageFolder],
    names: Sequence[str] = (),
    *,
    read: Callable[[PackageFolder], Columns] = PackageFolder.records,
) -> Picture:
    """Sorts the records of some packages into panels, in the order of the first package, losses first.

    Points that a fork shares with its parent, or with another fork, are drawn once.

    Args:
        packages: One or several; several share the panels.
        names: Draw only these: full names, names of panels, or patterns of them. Empty: all metrics. Times
            and memory (``perf/…``) and statistics (``stats/…``) are drawn only if they are named.
        read: Returns the records of a package.
    """
    panels: dict[str, Panel] = {}
    runs: list[PackageMarks] = []
    left_out = []
    known: dict[str, None] = {}
    depths: list[int] = []
    for package in packages:
        columns = read(package)
        recorded = {**columns.series, **columns.perf, **columns.stats}
        known.update(dict.fromkeys(recorded))
        drawn = [name for name in recorded if matches_any(name, names)] if names else list(columns.series)
        if not drawn:
            left_out.append(package.path.name)
            continue
        for name in drawn:
            split, part, metric = split_name(name)
            panel = panels.setdefault(metric, Panel(metric))
            panel.curves.append(_make_curve(len(runs), split, part, *recorded[name]))
        runs.append(_package_marks(package, columns))
        depths.append(len(lineage.ancestry(package)))
    for panel in panels.values():
        panel.curves = _without_shared_points(panel.curves, runs, depths)
    return Picture(sorted(panels.values(), key=_panel_order), runs, left_out, list(known))


def _without_shared_points(
    curves: Sequence[PlotCurve], runs: Sequence[PackageMarks], depths: Sequence[int]
) -> list[PlotCurve]:
    """Splits the curves of forks at the fork, and leaves out the points that another curve has too."""
    found: list[PlotCurve] = []
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


def _num_shared_points(curve: PlotCurve, other: PlotCurve, step: int) -> int:
    """Returns the number of points, up to a step, that are equal at the beginning of two curves."""
    most = bisect_right(curve.steps, step)
    pairs = zip(curve.steps[:most], curve.values, other.steps, other.values, strict=False)
    return next(
        (at for at, (s, v, t, w) in enumerate(pairs) if (s, v) != (t, w)), min(most, len(other.steps))
    )


def _split_at_fork(curve: PlotCurve, step: int, *, since: int) -> Iterator[PlotCurve]:
    """Splits the curve of a fork: the part before the fork, from point number ``since`` on, and its own part.
    Each begins with the last point of the curve before it, so that the line has no gap."""
    own = bisect_right(curve.steps, step)
    first = curve.steps[since - 1] if since else -1
    for begin, end, low, high in ((since, own, first, step), (own, len(curve.steps), step, math.inf)):
        gaps = [gap for gap in curve.gaps if low < gap <= high]
        points = slice(max(0, begin - (curve.split != "test")), end)  # tests are drawn without a line
        if begin < end or gaps:
            steps, values = curve.steps[points], curve.values[points]
            yield replace(curve, steps=steps, values=values, gaps=gaps, before_fork=high == step)


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (``loss``, ``valid/*``, ``perf/*_ms``) matches the recorded ``name``."""
    candidates = (name, split_name(name)[2])
    return any(
        pattern in candidates or any(fnmatchcase(one, pattern) for one in candidates) for pattern in patterns
    )


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


def _make_curve(run: int, split: str, part: str, steps: Sequence[int], values: Sequence[float]) -> PlotCurve:
    pairs = list(zip(steps, values, strict=True))
    finite = [(step, value) for step, value in pairs if math.isfinite(value)]
    gaps = [step for step, value in pairs if not math.isfinite(value)]
    return PlotCurve(run, split, part, [step for step, _ in finite], [value for _, value in finite], gaps)


def _panel_order(panel: Panel) -> tuple[int, str]:
    """Returns the sort key: losses, then validated metrics, then training metrics, then others (lr)."""
    splits = {curve.split for curve in panel.curves}
    kind = 0 if panel.name == "loss" else 1 if splits & {"valid", "test"} else 2 if "train" in splits else 3
    return kind, panel.name


def _package_marks(package: PackageFolder, columns: Columns) -> PackageMarks:
    line = package.store().lineage() if package.checkpoints.is_dir() else []
    best = set(package.derived.get("ckpt_best", []))
    progress = live_progress.read(package.progress)
    parent = lineage.parent_of(package)
    forked_at = parent.step if parent is not None else None
    return PackageMarks(
        name=package.path.name,
        checkpoints=[info.step for info in line],
        best=[info.step for info in line if info.id in best],
        # The first session of a fork begins at the fork, which has its own mark.
        session_starts=[
            step for number, step in columns.starts if step and (number > 1 or forked_at is None)
        ],
        forked_at=forked_at,
        steps_per_epoch=progress.steps_per_epoch if progress else 0,
    )
