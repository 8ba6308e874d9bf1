"""The step at which the recorded values of two runs part: up to it they are equal bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roost.operations.comparing.compared_run import RunContent
from roost.operations.comparing.comparison import CurveParting, PartedMetric, SessionStart
from roost.operations.comparing.metric_comparison import RunRecords
from roost.operations.curves.history_cache import Series
from roost.package import records

_TRAIN = "train/"
"""The prefix of means over the steps since the row before; other metrics are of one step."""
_MAX_METRICS = 20


def compare_curves(first: RunContent, second: RunContent) -> CurveParting:
    """Compares the metrics of two runs row by row."""
    a, b = RunRecords(first.package.path), RunRecords(second.package.path)
    in_both = filter(records.is_metric, frozenset(a.names) & frozenset(b.names))
    compared, latest = 0, _LatestSteps()
    found: dict[str, int] = {}
    for name in sorted(in_both, key=lambda name: (not name.startswith(_TRAIN), name)):
        steps, differs = _pairs(a.series(name), b.series(name), is_mean=name.startswith(_TRAIN))
        compared += len(steps)
        if differs.any():
            found[name] = int(steps[np.argmax(differs)])
        latest.add(steps)
    parting = min(found.values(), default=None)
    parted = [name for name, step in found.items() if step == parting]
    equal_until = latest.before(parting)
    return CurveParting(
        compared=compared,
        equal_until=equal_until,
        step=parting,
        metrics=[
            PartedMetric(name=name, values=[_value_at(one.series(name), parting or 0) for one in (a, b)])
            for name in parted[:_MAX_METRICS]
        ],
        num_metrics=len(parted),
        starts=_session_starts([first, second], equal_until, parting),
    )


class _LatestSteps:
    """The steps at which values were compared, of all metrics."""

    def __init__(self) -> None:
        self._arrays: list[Any] = []

    def add(self, steps: Any) -> None:
        if len(steps):
            self._arrays.append(steps)

    def before(self, step: int | None) -> int | None:
        """Returns the latest compared step before a step; None: the latest of all."""
        ends = [len(one) if step is None else int(np.searchsorted(one, step)) for one in self._arrays]
        return max(
            (int(one[end - 1]) for one, end in zip(self._arrays, ends, strict=True) if end), default=None
        )


def _pairs(first: Series, second: Series, *, is_mean: bool) -> tuple[Any, Any]:
    """Returns the steps at which two series have comparable values, and whether these differ.

    Args:
        first: One series.
        second: The other.
        is_mean: Whether a value is a mean over the steps since the one before: two of them are comparable if
            these steps are the same.
    """
    steps, in_first, in_second = np.intersect1d(first[0], second[0], assume_unique=True, return_indices=True)
    if is_mean:
        before = [np.concatenate([np.zeros(1, np.int64), one[0]]) for one in (first, second)]
        same = before[0][in_first] == before[1][in_second]
        steps, in_first, in_second = steps[same], in_first[same], in_second[same]
    a, b = first[1][in_first], second[1][in_second]
    return steps, (a.view(np.int64) != b.view(np.int64)) & ~(np.isnan(a) & np.isnan(b))


def _value_at(series: Series, step: int) -> float:
    steps, values = series
    return float(values[np.searchsorted(steps, step)])


def _session_starts(
    runs: Sequence[RunContent], equal_until: int | None, parting: int | None
) -> list[SessionStart]:
    """Returns the sessions that began between the last equal and the first different values, but those that
    began the run."""
    if parting is None:
        return []
    found = []
    for at, run in enumerate(runs):
        for session in run.sessions:
            start = records.start_step(run.package.path / "records" / f"{session.number}.jsonl")
            if start and (equal_until or 0) <= start < parting:
                host = session.recorded.host or session.request.host
                overrides = list(session.request.overrides)
                found.append(
                    SessionStart(run=at, session=session.number, step=start, host=host, overrides=overrides)
                )
    return found
