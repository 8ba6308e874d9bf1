"""How long the daemon sleeps at most, should somebody have forgotten to wake it."""

from __future__ import annotations

from roost.lab.queue.queue_store import Store

SETTING = "longest_sleep"
DEFAULT_SECONDS = 60.0
LEAST_SECONDS, MOST_SECONDS = 1, 3600


def longest_sleep(store: Store) -> float:
    """Seconds; as somebody has set it, or as is usual."""
    found = store.settings().get(SETTING, DEFAULT_SECONDS)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return max(LEAST_SECONDS, min(float(found), MOST_SECONDS)) if is_number else DEFAULT_SECONDS
