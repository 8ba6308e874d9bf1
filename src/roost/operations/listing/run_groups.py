"""`roost ls --group-by`: means over runs that share a setting, a sweep, or all but their seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.operations.listing.list_packages import FoundPackages, find_packages
from roost.operations.listing.package_row import FoundPackage
from roost.operations.listing.query import parse
from roost.operations.listing.run_listing import read_column, short_names, varying_settings

SEED, SWEEP = "seed", "sweep"
"""Keys with a meaning of their own: all that differs only in its seed, and all of one sweep."""


class MeanStd(msgspec.Struct, frozen=True):
    """Mean and standard deviation of several values."""

    mean: float
    std: float
    """Of the sample: the sum of squares of n values is divided by n - 1; 0 for one value."""
    count: int


class RunGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that are counted together, and the statistics of those that succeeded."""

    values: dict[str, Any]
    """The values by key that all runs of the group have, and that distinguish it from other groups."""
    runs: int
    succeeded: int
    metric: str | None
    """The metric of the runs; runs with another one are a group of their own."""
    last: MeanStd | None
    """Over the newest values."""
    best: MeanStd | None
    """Over the values of the best checkpoints."""
    sorted_by: dict[str, MeanStd]
    """The metric by which the query sorts, if it is not `metric`: over its newest values."""
    first_run: str
    """The path of the run that comes first in the list."""
    sweep_name: str | None = None
    """The name of the sweep, if all runs are of one that was given a name."""


class _Member(NamedTuple):
    position: int
    package: FoundPackage


def group_runs(directories: Iterable[Path | str | None], query: str, key: str) -> list[RunGroup]:
    """Returns the groups of the packages that a query selects, sorted as it sorts the packages: by their
    means, where it sorts by numbers, else by their first runs.

    Args:
        directories: As `roost.operations.listing.list_packages.list_packages` takes one.
        query: Selects and sorts the packages.
        key: ``seed``, ``sweep``, or a field, a setting or a metric, as in a query.

    Raises:
        NotFound: There is no such folder.
        UsageError: The query is not valid, or no package has the key.
    """
    found = find_packages(directories, query)
    groups: dict[tuple[str, str | None], tuple[dict[str, Any], list[_Member]]] = {}
    for position, (package, values) in enumerate(zip(found.selected, common_values(found, key), strict=True)):
        id = repr(values), package.entry.summary.metric  # as text, since 1 equals True, and NaN not itself
        groups.setdefault(id, (values, []))[1].append(_Member(position, package))
    order = _Order(found, query)
    return [
        _summarize(*group, order) for group in sorted(groups.values(), key=lambda group: order.key(group[1]))
    ]


def common_values(found: FoundPackages, key: str) -> list[dict[str, Any]]:
    """Returns, for each package, what it has in common with those of its group."""
    if key != SEED:
        return [{key: value} for value in read_column(found.columns, key, found.selected)]
    varying = {
        name: values
        for name, values in varying_settings(found.columns, found.selected).items()
        if name.rpartition(".")[2] != SEED
    }
    names = short_names(varying, found.columns.settings)
    return [
        {names[name]: values[at] for name, values in varying.items() if values[at] is not None}
        for at in range(len(found.selected))
    ]


class _Order:
    """The order of groups, by the first sort key of a query."""

    def __init__(self, found: FoundPackages, query: str) -> None:
        first = next(iter(parse(query).sort_keys), None)
        self._values: list[Any] = []
        self._sign = 1
        self.metric = (
            first.key.name if first is not None and first.key.name in found.columns.metrics else None
        )
        """The metric by which the query sorts."""
        if first is not None:
            self._values = read_column(found.columns, first.key.name, found.selected)
            self._sign = -1 if first.descending else 1

    def values(self, members: Sequence[_Member]) -> list[Any]:
        """Returns the values of the sort key."""
        return [self._values[one.position] for one in members]

    def key(self, members: Sequence[_Member]) -> tuple[float, int]:
        numbers = [
            value
            for one in members
            if self._values
            and isinstance(value := self._values[one.position], int | float)
            and not isinstance(value, bool)
            and not math.isnan(value)
        ]
        mean = self._sign * _mean(numbers) if numbers else math.inf
        return mean if self._values else 0.0, members[0].position


def _summarize(values: dict[str, Any], members: Sequence[_Member], order: _Order) -> RunGroup:
    rows = [one.package.entry.summary for one in members]
    succeeded = [row for row in rows if row.state == "succeeded"]
    first = members[0].package
    sorted_by = None
    if order.metric is not None and order.metric != rows[0].metric:
        sorted_by = _mean_std(
            order.values([one for one in members if one.package.entry.summary.state == "succeeded"])
        )
    return RunGroup(
        values=values,
        runs=len(rows),
        succeeded=len(succeeded),
        metric=rows[0].metric,
        last=_mean_std([row.last for row in succeeded]),
        best=_mean_std([row.best for row in succeeded]),
        sorted_by={} if sorted_by is None or order.metric is None else {order.metric: sorted_by},
        first_run=str(first.folder / first.name),
        sweep_name=rows[0].sweep_name if len({row.sweep for row in rows}) == 1 else None,
    )


def _mean_std(values: Sequence[float | None]) -> MeanStd | None:
    """Returns None if a run has no value: the others alone would be another sample."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    mean = _mean(numbers)
    squares = [(number - mean) ** 2 for number in numbers]
    std = math.sqrt(math.fsum(squares) / (len(numbers) - 1)) if len(numbers) > 1 else 0.0
    return MeanStd(mean, std, len(numbers))


def _mean(numbers: Sequence[float]) -> float:
    """Returns the mean, as the module statistics does, whose import takes as long as all the rest."""
    return math.fsum(numbers) / len(numbers)
