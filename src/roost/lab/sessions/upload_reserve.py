"""The part of a session's time that is left for the last upload to its remote copy."""

from __future__ import annotations

import time

from roost.supervisor.limits import SessionLimits

_SHARE = 0.1
"""Of a short session the reserve is this part: its own work must come first."""


def with_reserve(
    limits: SessionLimits, deadline: float | None, wait_seconds: float
) -> tuple[SessionLimits, float | None]:
    """Returns limits and deadline of the session itself, which leave time for the last upload: ``wait``, but
    no more than a tenth of the time.

    Args:
        limits: The limits of the session.
        deadline: When it must have ended, in unix seconds; None: no deadline.
        wait_seconds: ``remote.wait``.
    """
    if deadline is None:
        return limits, None
    reserve = max(0.0, min(wait_seconds, (deadline - time.time()) * _SHARE))
    if limits.wall_seconds is not None:
        limits = limits._replace(wall_seconds=max(1.0, limits.wall_seconds - reserve))
    return limits, deadline - reserve
