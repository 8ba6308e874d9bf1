"""The length of a session on platforms that end it: Colab and Kaggle.

Neither says in the session when it ends, so this is a guess from their documentation, and its note names it
as one. AutoDL sets no end: what its console schedules cannot be seen from inside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from roost.base.interval import parse_duration
from roost.base.system import process_identity
from roost.base.text.durations import format_duration

LENGTH_VARIABLE = "ROOST_SESSION_LENGTH"
LENGTH_SETTING = "limits.session_length"
NO_LIMIT = "never"
_COLAB, _KAGGLE = "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"
_AUTODL = ("AutoDLContainerUUID", "AutoDLRegion")
_TPU = ("TPU_ACCELERATOR_TYPE", "TPU_NAME", "TPU_WORKER_ID")
_HOUR = 3600.0


class _Platform(NamedTuple):
    name: str
    seconds: float
    source: str
    begins: float
    """Unix seconds."""
    begin_name: str


class PlatformLimit(NamedTuple):
    """The end of the session that a platform has, or that the user has given for the platform."""

    at: float | None
    """Unix seconds; None: no end is assumed."""
    is_guess: bool = False
    """Whether it follows from documentation only."""
    source: str = ""
    """Where the time is from."""
    notes: tuple[str, ...] = ()
    """Lines for the user where no end is assumed."""


def platform_limit(
    length: str | None, environment: Mapping[str, str] = os.environ, *, now: float | None = None
) -> PlatformLimit:
    """Returns the end of the session on this platform.

    Args:
        length: ``limits.session_length``; None: not given, then the variable ROOST_SESSION_LENGTH counts.
        environment: The environment of the session.
        now: Unix seconds.

    Raises:
        ConfigError: The length is not a duration.
    """
    now = time.time() if now is None else now
    setting = LENGTH_SETTING if length is not None else LENGTH_VARIABLE
    given = length if length is not None else environment.get(LENGTH_VARIABLE) or None
    if given == NO_LIMIT:
        return PlatformLimit(None)
    platform = _platform(environment)
    if given is not None:
        seconds = parse_duration(given, setting=setting)
        begins, since = (
            (platform.begins, platform.begin_name)
            if platform is not None
            else (machine_start(now), "this machine started")
        )
        return PlatformLimit(begins + seconds, False, f"{setting}={given}, since {since}")
    change = f"{LENGTH_SETTING}=24h or {LENGTH_VARIABLE} gives another length, `{NO_LIMIT}` none"
    if platform is None:
        if any(name in environment for name in _AUTODL):
            note = (
                "AutoDL: a shutdown that its console has scheduled cannot be seen from inside the instance; "
                "give its time in ROOST_DEADLINE"
            )
            return PlatformLimit(None, notes=(note,))
        return PlatformLimit(None)
    at = platform.begins + platform.seconds
    what = f"{platform.name} ends sessions {format_duration(platform.seconds)} after {platform.begin_name}"
    if at <= now:
        age = format_duration(now - platform.begins)
        note = f"{what} ({platform.source}), which was {age} ago: no time limit is assumed; {change}"
        return PlatformLimit(None, notes=(note,))
    return PlatformLimit(at, True, f"a guess: {what} ({platform.source}); {change}")


def _platform(environment: Mapping[str, str]) -> _Platform | None:
    now = time.time()
    if _COLAB in environment:
        source = "free of charge at most 12 h, research.google.com/colaboratory/faq.html"
        return _Platform("Colab", 12 * _HOUR, source, boot_time(now), "the boot of the machine")
    if _KAGGLE in environment:
        hours, device = (9, "TPU") if any(name in environment for name in _TPU) else (12, "CPU and GPU")
        source = f"{hours} h with {device}, kaggle.com/docs/notebooks"
        return _Platform("Kaggle", hours * _HOUR, source, machine_start(now), "the start of the session")
    return None


def boot_time(now: float) -> float:
    """Returns when the kernel started, in Unix seconds; ``now`` if it does not say."""
    try:
        return now - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # no Linux
        return now


def machine_start(now: float) -> float:
    """Returns when the first process started, in Unix seconds: in a container that of the container."""
    ticks = process_identity.start_ticks(1)
    if ticks is None:
        return boot_time(now)
    return min(now, boot_time(now) + ticks / os.sysconf("SC_CLK_TCK"))
