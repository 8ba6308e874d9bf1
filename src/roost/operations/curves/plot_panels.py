"""What `plot` draws, apart from how: metrics sorted into panels, and the marks on their axis."""

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
    """One metric of one package. ``gaps`` are the steps whose value was not finite."""

    run: int
    """Which of the picture's runs, from 0."""
    split: str
    """train, valid or test; the metric's whole name where it has none of these."""
    part: str
    """Which of several sets of that split, or empty."""
    steps: list[int]
    values: list[float]
    gaps: list[int]
    before: bool = False
    """Whether it is of before the fork, computed by the package from which this one goes on."""


@dataclass
class Panel:
    """Curves that share an axis: one metric's name, in all splits and packages."""

    name: str
    curves: list[PlotCurve] = field(default_factory=list)

    @property
    def logarithmic(self) -> bool:
        """A loss that falls by orders of magnitude shows nothing on a linear axis."""
        values = [value for curve in self.curves for value in curve.values]
        return (
            self.name.endswith("loss")
            and bool(values)
            and min(values) > 0
            and max(values) / min(values) > _LOG_RATIO
        )


@dataclass(frozen=True)
class PackageMarks:
    """The marks of one package."""

    name: str
    checkpoints: list[int]
    """Steps."""
    best: list[int]
    """Steps of those in the best track."""
    session_starts: list[int]
    """Steps at which a later session went on."""
    steps_per_epoch: int
    """0 while unknown."""
    forked_at: int | None = None
    """The step at which it goes on from another package."""


@dataclass(frozen=True)
class Picture:
    """All that is drawn."""

    panels: list[Panel]
    runs: list[PackageMarks]
    left_out: list[str]
    """Names of packages that have recorded nothing of it."""
    known: list[str]
    """All that the packages have recorded, by full name."""


def build_picture(
    packages: Sequence[PackageFolder],
    names: Sequence[str] = (),
    *,
    read: Callable[[PackageFolder], Columns] = PackageFolder.records,
) -> Picture:
    """Sorts the records of some packages into panels: those of the first package first, losses at the top.

    What a fork shares with its parent, or with another fork, is there once.

    Args:
        packages: One, or several to lay over each other.
        names: Draws these only: full names or those of panels, or patterns of them. All metrics without any;
            times and memory (``perf/…``) and statistics (``stats/…``) are drawn only when they are named.
        read: Gives what a package has recorded.
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
    """The curves of a panel, those of forks cut at their fork; what another one shows already is left out."""
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
    """How many points of a curve, up to a step, another one has too."""
    most = bisect_right(curve.steps, step)
    pairs = zip(curve.steps[:most], curve.values, other.steps, other.values, strict=False)
    return next(
        (at for at, (s, v, t, w) in enumerate(pairs) if (s, v) != (t, w)), min(most, len(other.steps))
    )


def _split_at_fork(curve: PlotCurve, step: int, *, since: int) -> Iterator[PlotCurve]:
    """A fork's curve in two: what was before the fork, from point number ``since`` on, and its own. Each
    begins with the last point of what goes before it, so that the line is whole."""
    own = bisect_right(curve.steps, step)
    first = curve.steps[since - 1] if since else -1
    for begin, end, low, high in ((since, own, first, step), (own, len(curve.steps), step, math.inf)):
        gaps = [gap for gap in curve.gaps if low < gap <= high]
        points = slice(max(0, begin - (curve.split != "test")), end)  # tests are no line
        if begin < end or gaps:
            steps, values = curve.steps[points], curve.values[points]
            yield replace(curve, steps=steps, values=values, gaps=gaps, before=high == step)


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (``loss``, ``valid/*``, ``perf/*_ms``) means this recorded ``name``."""
    meant = (name, split_name(name)[2])
    return any(pattern in meant or any(fnmatchcase(one, pattern) for one in meant) for pattern in patterns)


def split_name(name: str) -> tuple[str, str, str]:
    """(split, set, metric): ``valid/noisy/loss`` is ("valid", "noisy", "loss"); ``lr`` is ("lr", "", "lr")"""
    split, slash, rest = name.partition("/")
    if name.startswith(PERF):
        return name, "", name  # milliseconds, megabytes: each on an axis of its own
    if name.startswith(STATS):  # all parameters share an axis, all together have another
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
    """Losses, then what was validated, then what was trained, then the rest (learning rates)."""
    splits = {curve.split for curve in panel.curves}
    kind = 0 if panel.name == "loss" else 1 if splits & {"valid", "test"} else 2 if "train" in splits else 3
    return kind, panel.name


def _package_marks(package: PackageFolder, columns: Columns) -> PackageMarks:
    line = package.store().lineage() if package.checkpoints.is_dir() else []
    best = set(package.derived.get("ckpt_best", []))
    seen = live_progress.read(package.progress)
    parent = lineage.parent_of(package)
    forked_at = parent.step if parent is not None else None
    return PackageMarks(
        name=package.path.name,
        checkpoints=[info.step for info in line],
        best=[info.step for info in line if info.id in best],
        # A fork's first session begins where it was forked, which has a mark of its own.
        session_starts=[
            step for number, step in columns.starts if step and (number > 1 or forked_at is None)
        ],
        forked_at=forked_at,
        steps_per_epoch=seen.steps_per_epoch if seen else 0,
    )
