"""Moments in time, as people and batch systems write them."""

from __future__ import annotations

import contextlib
import math
import time
from datetime import datetime

from roost.base.errors import UsageError

_NEAR_SECONDS = 6 * 86400.0


def parse_timestamp(text: str, *, setting: str) -> float:
    """Unix seconds of a moment: such a number itself, or an ISO time such as ``2026-11-21T14:30``, in the
    time zone of this machine unless it names another.

    Raises:
        UsageError: It is neither.
    """
    stripped = text.strip()
    with contextlib.suppress(ValueError, OverflowError, OSError):
        seconds = float(stripped)
        if math.isfinite(seconds):
            return seconds
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(stripped).timestamp()
    raise UsageError(
        "is no moment",
        setting=setting,
        received=text,
        fix="write unix seconds (1795271400), or an ISO time (2026-11-21T14:30, 2026-11-21T14:30+01:00)",
    )


def format_clock(moment: float, *, seconds: bool = False) -> str:
    """The time of day of a moment in this machine's time zone: ``14:30``, with seconds ``14:30:05``; the
    number itself where no calendar has it."""
    try:
        return time.strftime("%H:%M:%S" if seconds else "%H:%M", time.localtime(moment))
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"


def format_dated_clock(seconds: float, *, now: float) -> str:
    """The same of a moment near another one: ``14:30`` of the same day, ``Tue 14:30`` within six days,
    ``2026-11-21 14:30`` of all others."""
    try:
        there, here = time.localtime(seconds), time.localtime(now)
        if there[:3] == here[:3]:
            return format_clock(seconds)
        is_near = abs(seconds - now) < _NEAR_SECONDS
        return time.strftime("%a %H:%M" if is_near else "%Y-%m-%d %H:%M", there)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"
