"""Writes the reasons of waiting tasks into the queue."""

from __future__ import annotations

import math
from collections.abc import Mapping

from roost.lab.policy.reason_codes import reason_code
from roost.lab.queue.queue_store import QueueStore

MANY_REASONS = 100
REWRITE_SECONDS = 10.0


class ReasonWriter:
    """Writes reasons into a queue if they differ from the written ones.

    A reason names the holders of the cards, so with a thousand pending tasks each start would write a
    thousand rows. If more than `MANY_REASONS` change in their details but not in their code, they are written
    every ten seconds.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._written: dict[str, str] = {}
        self._next_write = -math.inf
        """The time from which many changed details are written again."""
        self._has_unwritten = False

    def write(self, reasons: Mapping[str, str], *, now: float) -> None:
        """Writes the changed reasons.

        Args:
            reasons: The reasons of all waiting tasks.
            now: Monotonic seconds.
        """
        before = self._written
        new = {id: reason for id, reason in reasons.items() if before.get(id) != reason}
        details = {
            id
            for id, reason in new.items()
            if id in before and reason_code(reason) == reason_code(before[id])
        }
        is_too_soon = len(details) > MANY_REASONS and now < self._next_write
        if is_too_soon:
            new = {id: reason for id, reason in new.items() if id not in details}
        elif len(details) > MANY_REASONS:
            self._next_write = now + REWRITE_SECONDS
        self._has_unwritten = is_too_soon
        if new:
            self._store.set_wait_reasons(new)
        self._written = {id: new.get(id) or before[id] for id in reasons}

    def forget(self, id: str) -> None:
        """Forgets a task whose reason the queue has cleared."""
        self._written.pop(id, None)

    def clear(self) -> None:
        """Forgets all tasks: none waits."""
        self._written.clear()
        self._has_unwritten = False

    def seconds_until_write(self, now: float) -> float:
        """Returns the seconds until the remaining reasons are written; infinity if all are written."""
        return max(0.0, self._next_write - now) if self._has_unwritten else math.inf
