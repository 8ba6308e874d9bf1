"""The horizontal axis: the steps of a run as epochs, times or numbers of samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from roost.operations.curves.history_cache import Series
from roost.operations.curves.record_columns import NumberArray
from roost.package import live_progress
from roost.package.package import PackageFolder

RowNumbers = Callable[[str], Series | None]
"""Returns the steps and numbers of ``epoch`` or ``time``; None if no row has one."""
Positions = Callable[[NumberArray], NumberArray]
"""Returns the positions of steps on the axis."""
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def positions(kind: str, package: PackageFolder, row_numbers: RowNumbers) -> Positions | None:
    """Returns the positions of a run's steps on an axis; None if the run did not record what they take.

    Epochs are ``step / steps_per_epoch``, where the number of steps is known, else those of the rows.
    Samples are ``step`` times the mean number of samples per step, up to the newest progress record. Times
    between two rows are interpolated.
    """
    if kind == "step":
        return lambda steps: steps
    progress = live_progress.read(package.progress)
    if kind == "samples":
        per_step = progress.samples / progress.step if progress and progress.step else 0.0
        return (lambda steps: steps * per_step) if per_step else None
    if kind == "epoch":
        if progress and progress.steps_per_epoch:
            length = progress.steps_per_epoch
            return lambda steps: steps / length
        found = row_numbers("epoch")
        return _interpolation(*found) if found is not None else None
    found = row_numbers("time")
    if found is None:
        return None
    steps, times = found
    # A line of a curve must not run backwards where a clock was set back.
    times = np.maximum.accumulate(times)
    return _interpolation(steps, times if kind == "time" else elapsed(package, times))


def time_unit(seconds: float) -> tuple[float, str]:
    """Returns a unit in which some seconds are readable: its length in seconds, and its name."""
    return next(((length, name) for length, name in _UNITS if seconds >= 2 * length), (1.0, "seconds"))


def _interpolation(steps: NumberArray, numbers: NumberArray) -> Positions:
    return lambda wanted: np.interp(wanted, steps, numbers)


def elapsed(package: PackageFolder, times: NumberArray) -> NumberArray:
    """Returns the seconds that sessions had lasted at some times, without the pauses between them. Times
    before the first session are of rows that a fork inherited.

    Args:
        package: The package.
        times: Unix seconds, ascending; at least one.
    """
    records = [one.recorded for one in package.sessions()]
    known = sorted((one.started, one.seconds or 0.0) for one in records if one.started is not None)
    if not known or times[0] < known[0][0]:
        known.insert(0, (float(times[0]), 0.0))
    begins, lengths = np.array(known, np.float64).T
    number = np.searchsorted(begins, times, side="right") - 1
    np.maximum.at(lengths, number, times - begins[number])  # of a session that has not ended, or was killed
    lengths = np.minimum(lengths, np.append(np.diff(begins), np.inf))
    before = np.cumsum(lengths) - lengths
    found: NumberArray = before[number] + times - begins[number]
    return found
