"""The content of a plot of settings: a point or line for each run, by its settings and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from roost.base.errors import NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.operations.listing.list_packages import FoundPackages
from roost.operations.listing.run_listing import read_column
from roost.operations.plots.plot_panels import MAX_PANELS, matches_any
from roost.operations.plots.point_reduction import LARGEST
from roost.operations.plots.recorded_run import RecordedRun
from roost.operations.plots.run_labels import format_value, read_table
from roost.package.package import PackageFolder

VALUES = ("last", "min", "max")
_LOG_RATIO = 100.0
"""Numbers that span so much have a logarithmic axis."""
_NONE = "(none)"


class SettingAxis(msgspec.Struct, frozen=True):
    """The values of one setting or metric."""

    name: str
    positions: list[float]
    """The position of each run: the number, or the place of its category."""
    categories: list[str]
    """The labels of positions 0, 1, …, if the values are not all numbers."""
    logarithmic: bool


class SettingPoints(msgspec.Struct, frozen=True):
    """Runs by settings and metrics."""

    runs: list[str]
    """The names of the packages."""
    keys: list[SettingAxis]
    metrics: list[SettingAxis]
    left_out: list[str]
    """The names of packages without a value of each metric."""
    notes: list[str]


def read_points(
    packages: Sequence[Path], keys: Sequence[str], names: Sequence[str] = (), *, value: str = "last"
) -> SettingPoints:
    """Returns the settings and metrics of some packages.

    Args:
        packages: The packages.
        keys: Settings, or other keys of `roost ls`.
        names: Metrics, or patterns of them; empty: the main metric of the first package that has one.
        value: The value of a metric, one of `VALUES`: the newest, the least or the greatest finite one.

    Raises:
        NotFound: A name matches no metric, or no package has values of all.
        UsageError: A key is not known, ``value`` is not, or there are too many metrics.
    """
    if value not in VALUES:
        raise UsageError(
            "is not known", setting="--value", received=value, fix=f"give one of: {', '.join(VALUES)}"
        )
    table = read_table(packages)
    metrics = _metric_names(table, names)
    keys = [key for key in keys if key not in metrics] or keys  # the metric has an axis in any case
    columns = [read_column(table.columns, key, table.selected) for key in keys]
    if len(metrics) * len(keys) > MAX_PANELS:
        raise UsageError(
            f"{len(metrics):,} metrics are too many for one picture", setting="-m",
            fix=f"name some: -m {metrics[0]!r}",
        )  # fmt: skip
    values = np.array([_metric_values(table, metrics, value)], np.float64)[0].reshape(len(metrics), -1)
    kept = np.flatnonzero((np.abs(values) <= LARGEST).all(axis=0))
    notes = []
    if num_infinite := int((np.abs(values) > LARGEST).any(axis=0).sum()):
        are = "run is" if num_infinite == 1 else "runs are"
        notes.append(f"{num_infinite} {are} left out: the value is infinite")
    if not len(kept):
        raise NotFound("no package has a value of each metric", setting="-m", received=metrics,
                       fix="name metrics that are recorded: `roost ls --json` has all")  # fmt: skip
    table_names = [one.entry.summary.name for one in table.selected]
    return SettingPoints(
        runs=[table_names[at] for at in kept],
        keys=[_axis(key, [column[at] for at in kept]) for key, column in zip(keys, columns, strict=True)],
        metrics=[_axis(name, row[kept].tolist()) for name, row in zip(metrics, values, strict=True)],
        left_out=[name for at, name in enumerate(table_names) if at not in set(kept.tolist())],
        notes=notes,
    )


def _metric_names(table: FoundPackages, names: Sequence[str]) -> list[str]:
    if not names:
        main = next((one.entry.summary.metric for one in table.selected if one.entry.summary.metric), None)
        if main is None:
            raise NotFound("nothing is recorded yet", received=[one.name for one in table.selected])
        return [main]
    known = table.columns.metrics
    found: dict[str, None] = {}
    for name in names:
        matching = [one for one in known if matches_any(one, [name])]
        if not matching:
            fix = did_you_mean(name, known) + "`roost ls --json` has all metrics"
            raise NotFound("no metric of that name is recorded", setting="-m", received=name, fix=fix)
        found |= dict.fromkeys(matching)
    return list(found)


def _metric_values(table: FoundPackages, metrics: Sequence[str], value: str) -> list[list[float]]:
    """Returns the values of each metric, NaN for a run that has none."""
    if value == "last":
        getters = [table.columns.metric(name) for name in metrics]
        return [[next(iter(get(one)), math.nan) for one in table.selected] for get in getters]
    choose: Callable[[Any], Any] = np.min if value == "min" else np.max
    found = [[math.nan] * len(table.selected) for _ in metrics]
    for at, one in enumerate(table.selected):
        run = RecordedRun(PackageFolder(one.folder / one.name))
        for number, name in enumerate(metrics):
            if name in run.names:
                _, values = run.series(name)
                finite = values[np.isfinite(values)]
                found[number][at] = float(choose(finite)) if len(finite) else math.nan
    return found


def _axis(name: str, values: Sequence[Any]) -> SettingAxis:
    if all(type(one) in (int, float) and abs(one) <= LARGEST for one in values):
        low, high = min(values), max(values)
        return SettingAxis(name, [float(one) for one in values], [], low > 0 and high / low >= _LOG_RATIO)
    numbers = sorted({one for one in values if type(one) in (int, float)})
    texts = sorted({_text(one) for one in values if type(one) not in (int, float)})
    categories = list(dict.fromkeys([*map(_text, numbers), *texts]))
    return SettingAxis(name, [float(categories.index(_text(one))) for one in values], categories, False)


def _text(value: Any) -> str:
    return _NONE if value is None else format_value(value)
