"""Times as users and batch systems write them: parsing and formatting."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime

from roost.base.errors import UsageError

_NEAR_SECONDS = 6 * 86400.0
"""Within this distance the name of the weekday is unambiguous."""
_MAX_SECONDS = 1e11
"""Larger numbers are no seconds: those of milliseconds have this size."""


def parse_timestamp(text: str, *, setting: str) -> float:
    """Returns the Unix seconds of a time: a number of Unix seconds, or an ISO time such as
    ``2026-11-21T14:30``, in the time zone of this machine unless the text names another one.

    Raises:
        UsageError: The text is neither.
    """
    stripped = text.strip()
    with contextlib.suppress(ValueError, OverflowError, OSError):
        seconds = float(stripped)
        if abs(seconds) < _MAX_SECONDS:
            return seconds
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(stripped).timestamp()
    raise UsageError(
        "is not a time",
        setting=setting,
        received=text,
        fix="write unix seconds (1795271400), or an ISO time (2026-11-21T14:30, 2026-11-21T14:30+01:00)",
    )


def format_time(seconds: float | None) -> str:
    """Returns a Unix time as local date and time; empty for None."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def format_clock(unix_seconds: float, *, seconds: bool = False) -> str:
    """Returns the time of day in this machine's time zone: ``14:30``, with seconds ``14:30:05``; the number
    itself if it is outside of the calendar."""
    try:
        return time.strftime("%H:%M:%S" if seconds else "%H:%M", time.localtime(unix_seconds))
    except (ValueError, OverflowError, OSError):
        return f"{unix_seconds:g}"


def format_dated_clock(seconds: float, *, now: float) -> str:
    """Returns a time with its date relative to ``now``: ``14:30`` on the same day, ``Tue 14:30`` within six
    days, otherwise ``2026-11-21 14:30``."""
    try:
        there, here = time.localtime(seconds), time.localtime(now)
        if there[:3] == here[:3]:
            return format_clock(seconds)
        is_near = abs(seconds - now) < _NEAR_SECONDS
        return time.strftime("%a %H:%M" if is_near else "%Y-%m-%d %H:%M", there)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"
