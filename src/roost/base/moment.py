"""Moments in time, as people and batch systems write them."""

from __future__ import annotations

import contextlib
import math
import time
from datetime import datetime

from roost.base.errors import UsageError


def parse_moment(text: str, *, setting: str) -> float:
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


def clock(seconds: float) -> str:
    """The time of day of a moment in this machine's time zone: ``14:30``."""
    return time.strftime("%H:%M", time.localtime(seconds))
