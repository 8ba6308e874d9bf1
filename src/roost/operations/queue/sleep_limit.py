"""The operation ``change_delay``: the longest sleep of the lab's daemon when no event wakes it."""

from __future__ import annotations

from roost.base.errors import UsageError
from roost.lab.scheduling.max_sleep import LEAST_SECONDS, MOST_SECONDS, SETTING
from roost.operations import lab


def change_delay(seconds: int) -> None:
    """Changes the longest sleep of the daemon and wakes the daemon. Submissions and ends of tasks wake it
    anyway.

    Raises:
        UsageError: The time is too short or too long; then nothing was changed.
        RoostError: The queue cannot be written.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        fix = f"give {LEAST_SECONDS} to {MOST_SECONDS} seconds"
        raise UsageError("is not a valid delay", setting="new_delay", received=seconds, fix=fix)
    with lab.locked_queue() as store:
        store.set_setting(SETTING, seconds)
        store.wake_daemon()
