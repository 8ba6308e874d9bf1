"""The longest sleep of the daemon, in case a process did not wake it."""

from __future__ import annotations

from roost.lab.queue.queue_store import QueueStore

SETTING = "longest_sleep"
DEFAULT_SECONDS = 60.0
LEAST_SECONDS, MOST_SECONDS = 1, 3600


def longest_sleep(store: QueueStore) -> float:
    """Returns the longest sleep in seconds: the setting, or the default."""
    found = store.settings().get(SETTING, DEFAULT_SECONDS)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return max(LEAST_SECONDS, min(float(found), MOST_SECONDS)) if is_number else DEFAULT_SECONDS
