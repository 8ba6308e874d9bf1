from __future__ import annotations

from typing import Any

from roost.base.interval import NEVER
from roost.train.progress import Progress
from roost.train.session_forecast import Forecast, SessionForecast


def after(steps: int, passed: float, /, *, ends: float, first: int = 0, **progress: Any) -> Forecast | None:
    """The forecast after so many steps, of which the first had ended in second 50."""
    found = SessionForecast(first)
    found.note(first, 10.0)
    found.note(first + 1, 50.0)
    progress = {"total_steps": 1000, **progress}
    now = 50.0 + passed
    return found.unfinished(
        Progress(step=first + 1 + steps, **progress), now, ends=ends, session_seconds=3600.0
    )


def test_the_first_step_says_nothing_about_the_others() -> None:
    """99 steps in 99 s: 900 s are left of the run, 500 s of the session."""
    assert after(99, 99.0, ends=649.0) == (600, 400.0)


def test_a_run_that_finishes_is_not_mentioned() -> None:
    assert after(99, 99.0, ends=149.0 + 900) is None
    assert after(99, 99.0, ends=149.0 + 880) is None, "that is too close"


def test_before_it_is_measured_nothing_is_said() -> None:
    assert after(2, 300.0, ends=400.0) is None
    assert after(50, 59.0, ends=200.0) is None
    assert SessionForecast(0).unfinished(Progress(total_steps=9), 9.0, ends=9.0, session_seconds=9.0) is None


def test_a_run_without_a_known_end() -> None:
    assert after(99, 99.0, ends=649.0, total_steps=NEVER) is None
    assert after(99, 99.0, ends=649.0, total_steps=0) is None
    assert after(99, 99.0, ends=649.0, total_steps=NEVER, total_seconds=1000.0, seconds=200.0) == (600, 300.0)


def test_the_steps_of_earlier_sessions_took_no_time_of_this_one() -> None:
    assert after(99, 99.0, ends=249.0, first=700) == (900, 100.0)
