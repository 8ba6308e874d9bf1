"""``change_delay``: how long the lab's daemon sleeps at most when nobody wakes it."""

from __future__ import annotations

from roost.base.errors import UsageError
from roost.lab.scheduling.max_sleep import LEAST_SECONDS, MOST_SECONDS, SETTING
from roost.operations import lab


def change_delay(seconds: int) -> None:
    """Changes it, and has the daemon take it over. What is submitted or ends wakes the daemon anyway.

    Raises:
        UsageError: It is too short or too long; then nothing was changed.
        RoostError: The queue cannot be written.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        fix = f"give {LEAST_SECONDS} to {MOST_SECONDS} seconds"
        raise UsageError("is no delay for the lab", setting="new_delay", received=seconds, fix=fix)
    with lab.changed() as store:
        store.set(SETTING, seconds)
        store.wake()
