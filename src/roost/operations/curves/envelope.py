"""Reduces curves to a width in pixels: in each column the exact first, least, greatest and last value.

Nothing is sampled: every extreme of the data is kept, however few the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roost.base.errors import NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.operations.curves import history_cache
from roost.operations.curves.curve import CurveEnvelope, NonfiniteGap, RecordedCurves
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
    """Returns the curves of some metrics.

    Args:
        folder: The ``records`` folder of a package.
        names: The metrics.
        from_step: The first step; None: the first recorded step.
        to_step: The last step; None: the last recorded step.
        width: The number of columns, in pixels.

    Raises:
        NotFound: A metric is not recorded.
        UsageError: ``from_step`` is after ``to_step``.
    """
    if from_step is not None and to_step is not None and from_step > to_step:
        raise UsageError("is before from_step", setting="to_step", received=to_step, fix="swap the two")
    history, series = history_cache.read_series(folder, lambda known: _checked_names(names, known))
    steps = [steps for steps, _ in series.values() if len(steps)]
    low = from_step if from_step is not None else min((int(one[0]) for one in steps), default=None)
    high = to_step if to_step is not None else max((int(one[-1]) for one in steps), default=None)
    curves = []
    if low is not None and high is not None and series:
        # If one bound is given and lies beyond the data, the range is one step without values.
        high = max(low, high) if to_step is None else high
        low = min(low, high)
        curves = [build_envelope(name, *found, low, high, width) for name, found in series.items()]
    return RecordedCurves(
        names=history.names, from_step=low, to_step=high, width=width, curves=curves, cursor=history.cursor
    )


def _checked_names(names: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in known:
            choices = f"name one of: {', '.join(known[:_MAX_LISTED])}"
            again = "try again when the run has recorded a row"
            fix = did_you_mean(name, known) + choices if known else again
            raise NotFound("is not recorded", setting="name", received=name, fix=fix)
    return names


def build_envelope(
    name: str, steps: NumberArray, values: NumberArray, low: int, high: int, width: int
) -> CurveEnvelope:
    """Returns the curve of one metric between two steps, both included.

    Args:
        name: The metric.
        steps: The recorded steps, ascending.
        values: The values at these steps.
        low: The first step.
        high: The last step.
        width: The number of columns.
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
    finite = begin + np.flatnonzero(is_finite)
    own_steps, own_values = (steps[begin:end], values[begin:end]) if len(finite) == end - begin else (
        steps[finite], values[finite])  # fmt: skip
    bounds = np.searchsorted(finite, bounds)
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
    for kind, is_kind in (("nan", np.isnan(values)), ("inf", values == np.inf), ("-inf", values == -np.inf)):
        indices = np.flatnonzero(is_kind)
        edges = np.searchsorted(indices, bounds)
        for column in np.flatnonzero(np.diff(edges)).tolist():
            first = int(edges[column])
            count = int(edges[column + 1]) - first
            found.append(NonfiniteGap(column, kind, count, int(steps[indices[first]])))
    return sorted(found, key=lambda gap: (gap.column, gap.kind))
