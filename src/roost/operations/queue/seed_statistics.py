"""What the runs of a sweep that differ in their seed alone have in common: means and how far they scatter."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from roost.operations.reading.package_row import Row

_SEED = re.compile(r"(?<![^ _])seed([=-])-?\d+")
"""As `roost.operations.queue.sweep.label` writes it; with ``=`` of a name that somebody gave."""


class MeanStd(NamedTuple):
    """Of several values."""

    mean: float
    std: float
    """The sample's: of n values, divided by n - 1."""


class SeedStatistics(NamedTuple):
    """Runs that differ in their seed alone, and have succeeded."""

    name: str
    runs: int
    metric: str
    last: MeanStd | None
    """Of the newest values."""
    best: MeanStd | None
    """Of those in the best checkpoints; None without a rule."""


def statistics_over_seeds(rows: Sequence[Row]) -> list[SeedStatistics]:
    """Each group of at least two runs, where its first one stands."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.group is not None and row.metric is not None and row.state == "succeeded":
            groups.setdefault((row.group, row.metric), []).append(row)
    return [
        SeedStatistics(
            name=_SEED.sub(r"seed\1*", runs[0].name),
            runs=len(runs),
            metric=metric,
            last=_mean_std([run.last for run in runs]),
            best=_mean_std([run.best for run in runs]),
        )
        for (_, metric), runs in groups.items()
        if len(runs) > 1
    ]


def _mean_std(values: Sequence[float | None]) -> MeanStd | None:
    found = [value for value in values if value is not None]
    if len(found) < 2 or len(found) < len(values):
        return None
    return MeanStd(statistics.fmean(found), statistics.stdev(found))
