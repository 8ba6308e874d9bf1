"""Curves for a picture of some pixels: in each column the exact first, least, greatest and last value.

Nothing is sampled: every extreme of the data is in it, however few the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roost.base.errors import NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.operations.curves import history_cache
from roost.operations.curves.curve import CurveEnvelope, NonfiniteGap, RecordedCurves
from roost.operations.curves.history_cache import History
from roost.operations.curves.record_columns import NumberArray

_MAX_LISTED = 20


def build_envelopes(
    folder: Path,
    names: Sequence[str] = (),
    *,
    from_step: int | None = None,
    to_step: int | None = None,
    width: int = 1000,
) -> RecordedCurves:
    """The curves of some metrics.

    Args:
        folder: A package's ``records``.
        names: Of what is recorded.
        from_step: The first step; None: the first that there is.
        to_step: The last step; None: the last that there is.
        width: Pixels.

    Raises:
        NotFound: One of the names is not recorded.
        UsageError: The steps are in the wrong order.
    """
    if from_step is not None and to_step is not None and from_step > to_step:
        raise UsageError("is before from_step", setting="to_step", received=to_step, fix="swap the two")
    try:
        history = History(folder)
        series = {name: _read_series(history, name) for name in names}
    except history_cache.DamagedCache:
        history_cache.remove_cached(folder)
        history = History(folder)
        series = {name: _read_series(history, name) for name in names}
    steps = [steps for steps, _ in series.values() if len(steps)]
    low = from_step if from_step is not None else min((int(one[0]) for one in steps), default=None)
    high = to_step if to_step is not None else max((int(one[-1]) for one in steps), default=None)
    curves = []
    if low is not None and high is not None and series:
        # Beyond the data on one side, and asked for nothing on the other, there is one empty column.
        high = max(low, high) if to_step is None else high
        low = min(low, high)
        curves = [build_envelope(name, *found, low, high, width) for name, found in series.items()]
    return RecordedCurves(
        names=history.names, from_step=low, to_step=high, width=width, curves=curves, cursor=history.cursor
    )


def _read_series(history: History, name: str) -> tuple[NumberArray, NumberArray]:
    try:
        return history.series(name)
    except KeyError:
        known = history.names
        named = f"ask for one of: {', '.join(known[:_MAX_LISTED])}"
        fix = did_you_mean(name, known) + named if known else "ask again once the run has recorded something"
        raise NotFound("is not recorded", setting="name", received=name, fix=fix) from None


def build_envelope(
    name: str, steps: NumberArray, values: NumberArray, low: int, high: int, width: int
) -> CurveEnvelope:
    """One curve between two steps, both of them in it.

    Args:
        name: Its name.
        steps: Ascending.
        values: At the steps.
        low: The first step.
        high: The last one.
        width: Pixels.
    """
    span = high - low + 1
    # The first step of each column, in integers of any size: the product may be beyond 64 bits.
    edges = np.array([low - (-column * span // width) for column in range(width + 1)], np.int64)
    bounds = np.searchsorted(steps, edges)
    begin, end = int(bounds[0]), int(bounds[-1])
    is_finite = np.isfinite(values[begin:end])
    gaps = []
    if not is_finite.all():
        gaps = _find_gaps(steps[begin:end], values[begin:end], bounds - begin)
    there = begin + np.flatnonzero(is_finite)
    own_steps, own_values = (steps[begin:end], values[begin:end]) if len(there) == end - begin else (
        steps[there], values[there])  # fmt: skip
    bounds = np.searchsorted(there, bounds)
    filled = np.flatnonzero(np.diff(bounds))
    firsts = bounds[filled].tolist()
    lasts = (bounds[filled + 1] - 1).tolist()
    least = [one + int(own_values[one : two + 1].argmin()) for one, two in zip(firsts, lasts, strict=True)]
    most = [one + int(own_values[one : two + 1].argmax()) for one, two in zip(firsts, lasts, strict=True)]
    return CurveEnvelope(
        name=name,
        points=end - begin,
        columns=filled.tolist(),
        counts=[two - one + 1 for one, two in zip(firsts, lasts, strict=True)],
        first_steps=own_steps[firsts].tolist(),
        first=own_values[firsts].tolist(),
        min_steps=own_steps[least].tolist(),
        min=own_values[least].tolist(),
        max_steps=own_steps[most].tolist(),
        max=own_values[most].tolist(),
        last_steps=own_steps[lasts].tolist(),
        last=own_values[lasts].tolist(),
        gaps=gaps,
    )


def _find_gaps(steps: NumberArray, values: NumberArray, bounds: NumberArray) -> list[NonfiniteGap]:
    found = []
    for kind, is_one in (("nan", np.isnan(values)), ("inf", values == np.inf), ("-inf", values == -np.inf)):
        there = np.flatnonzero(is_one)
        places = np.searchsorted(there, bounds)
        for column in np.flatnonzero(np.diff(places)).tolist():
            first = int(places[column])
            count = int(places[column + 1]) - first
            found.append(NonfiniteGap(column, kind, count, int(steps[there[first]])))
    return sorted(found, key=lambda gap: (gap.column, gap.kind))
