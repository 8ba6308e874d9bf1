"""Waiting for an event that another process brings about: with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TICK_SECONDS = 0.005
MAX_SECONDS = 100.0
"""Only a test that fails waits so long; a busy machine may be ten times slower than a quiet one."""


def wait_for(condition: Callable[[], T], timeout_seconds: float = MAX_SECONDS) -> T:
    """Asks until the answer is true, and gives it.

    Raises:
        TimeoutError: It was not true in time.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{condition} was not true within {timeout_seconds:g} s")
        time.sleep(_TICK_SECONDS)
    return answer
