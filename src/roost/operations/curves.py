"""What `plot` draws, apart from how: metrics sorted into panels, and the marks on their axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from roost.package import progress
from roost.package.package import Package
from roost.package.records import PERF, Columns

SPLITS = ("train", "valid", "test")
_LOG_RATIO = 30.0


@dataclass(frozen=True)
class Curve:
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


@dataclass
class Panel:
    """Curves that share an axis: one metric's name, in all splits and packages."""

    name: str
    curves: list[Curve] = field(default_factory=list)

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
class Run:
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


@dataclass(frozen=True)
class Picture:
    """All that is drawn."""

    panels: list[Panel]
    runs: list[Run]
    left_out: list[str]
    """Names of packages that have recorded nothing of it."""
    known: list[str]
    """All that the packages have recorded, by full name."""


def picture(packages: Sequence[Package], names: Sequence[str] = ()) -> Picture:
    """Sorts the records of some packages into panels: those of the first package first, losses at the top.

    Args:
        packages: One, or several to lay over each other.
        names: Draws these only: full names or those of panels, or patterns of them. All metrics without any;
            times and memory (``perf/…``) are drawn only when they are named.
    """
    panels: dict[str, Panel] = {}
    runs: list[Run] = []
    left_out = []
    known: dict[str, None] = {}
    for package in packages:
        columns = package.records()
        recorded = {**columns.series, **columns.perf}
        known.update(dict.fromkeys(recorded))
        drawn = [name for name in recorded if is_named(name, names)] if names else list(columns.series)
        if not drawn:
            left_out.append(package.path.name)
            continue
        for name in drawn:
            split, part, metric = split_name(name)
            panel = panels.setdefault(metric, Panel(metric))
            panel.curves.append(_curve(len(runs), split, part, *recorded[name]))
        runs.append(_run(package, columns))
    return Picture(sorted(panels.values(), key=_rank), runs, left_out, list(known))


def is_named(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (``loss``, ``valid/*``, ``perf/*_ms``) means this recorded ``name``."""
    meant = (name, split_name(name)[2])
    return any(pattern in meant or any(fnmatchcase(one, pattern) for one in meant) for pattern in patterns)


def split_name(name: str) -> tuple[str, str, str]:
    """(split, set, metric): ``valid/noisy/loss`` is ("valid", "noisy", "loss"); ``lr`` is ("lr", "", "lr")"""
    split, slash, rest = name.partition("/")
    if name.startswith(PERF):
        return name, "", name  # milliseconds, megabytes: each on an axis of its own
    if split not in SPLITS or not slash:
        return name, "", name.partition("/")[0]
    part, _, metric = rest.rpartition("/")
    return split, part, metric


def _curve(run: int, split: str, part: str, steps: Sequence[int], values: Sequence[float]) -> Curve:
    pairs = list(zip(steps, values, strict=True))
    finite = [(step, value) for step, value in pairs if math.isfinite(value)]
    gaps = [step for step, value in pairs if not math.isfinite(value)]
    return Curve(run, split, part, [step for step, _ in finite], [value for _, value in finite], gaps)


def _rank(panel: Panel) -> tuple[int, str]:
    """Losses, then what was validated, then what was trained, then the rest (learning rates)."""
    splits = {curve.split for curve in panel.curves}
    kind = 0 if panel.name == "loss" else 1 if splits & {"valid", "test"} else 2 if "train" in splits else 3
    return kind, panel.name


def _run(package: Package, columns: Columns) -> Run:
    line = package.store().line() if package.checkpoints.is_dir() else []
    best = set(package.derived.get("ckpt_best", []))
    seen = progress.read(package.progress)
    return Run(
        name=package.path.name,
        checkpoints=[info.step for info in line],
        best=[info.step for info in line if info.id in best],
        session_starts=[step for _, step in columns.starts if step],
        steps_per_epoch=seen.steps_per_epoch if seen else 0,
    )
