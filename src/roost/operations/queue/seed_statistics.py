"""Mean and standard deviation over the runs of a sweep that differ only in their seed."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from roost.operations.reading.package_row import PackageSummary

_SEED = re.compile(r"(?<![^ _])seed([=-])-?\d+")
"""As `roost.operations.queue.sweep.label` writes it; with ``=`` in a name that the user gave."""


class MeanStd(NamedTuple):
    """Mean and standard deviation of several values."""

    mean: float
    std: float
    """Of the sample: the sum of squares of n values is divided by n - 1."""


class SeedStatistics(NamedTuple):
    """Statistics over succeeded runs that differ only in their seed."""

    name: str
    runs: int
    metric: str
    last: MeanStd | None
    """Over the newest values."""
    best: MeanStd | None
    """Over the values of the best checkpoints; None without a rule for them."""


def statistics_over_seeds(rows: Sequence[PackageSummary]) -> list[SeedStatistics]:
    """Returns the statistics of each group of at least two runs, in the order of their first runs."""
    groups: dict[tuple[str, str], list[PackageSummary]] = {}
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
