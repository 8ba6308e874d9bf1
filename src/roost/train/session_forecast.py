"""The forecast whether a run will finish before its session ends."""

from __future__ import annotations

import math
from typing import NamedTuple

from roost.base.interval import NEVER
from roost.train.progress import Progress

_MIN_STEPS = 3
_MIN_SECONDS, _MIN_DIVISOR = 60.0, 20
"""At least so many steps, and a minute (in a short session 1/20 of it), are measured before anything is
said."""
_MARGIN = 1.05
"""The run must need so many times the time that is left: what is close is said later, or never."""


class Forecast(NamedTuple):
    """The end of a session that comes before the end of its run."""

    step: int
    """The step at which it will end, about."""
    more_seconds: float
    """How long the rest takes, about."""


class SessionForecast:
    """Measures the pace of a run by the clock, with all that comes between the steps: validations, saves,
    rows and waits. The first step, which compiles, is not measured."""

    def __init__(self, step: int) -> None:
        self._first_step = step
        self._begin: tuple[int, float] | None = None

    def note(self, step: int, now: float) -> None:
        """Notes the newest step."""
        if self._begin is None and step > self._first_step:
            self._begin = (step, now)

    def unfinished(
        self, progress: Progress, now: float, *, ends: float, session_seconds: float
    ) -> Forecast | None:
        """Returns what will be left; None while the pace or the end of the run is unknown, or if the run
        probably finishes.

        Args:
            progress: The progress of the run.
            now: Unix seconds.
            ends: When the run begins to end, Unix seconds.
            session_seconds: The length of the session.
        """
        if self._begin is None:
            return None
        steps, seconds = progress.step - self._begin[0], now - self._begin[1]
        if steps < _MIN_STEPS or seconds < min(_MIN_SECONDS, session_seconds / _MIN_DIVISOR):
            return None
        needed = _steps_left(progress) * seconds / steps
        if math.isfinite(progress.total_seconds):
            needed = min(needed, progress.total_seconds - progress.seconds)
        left = max(0.0, ends - now)
        if not math.isfinite(needed) or needed <= left * _MARGIN:
            return None
        return Forecast(progress.step + int(left * steps / seconds), needed - left)


def _steps_left(progress: Progress) -> float:
    is_known = 0 < progress.total_steps < NEVER
    return progress.total_steps - progress.step if is_known else math.inf
