"""What tasks that wait are told of why."""

from __future__ import annotations

import math
from collections.abc import Mapping

from roost.lab.policy.reason_codes import reason_code
from roost.lab.queue.queue_store import Store

MANY_REASONS = 100
REWRITE_SECONDS = 10.0


class ReasonWriter:
    """Writes reasons into a queue, those that are not what was written before.

    A reason names who has the cards, so where a thousand tasks wait each start would be a thousand rows. If
    more than `MANY_REASONS` are to be told the same word with other details, that is done every ten seconds.

    Args:
        store: The queue.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, str] = {}
        self._again = -math.inf
        """From when on many are told anew."""
        self._is_behind = False

    def tell(self, reasons: Mapping[str, str], *, now: float) -> None:
        """Writes them.

        Args:
            reasons: Of all tasks that wait.
            now: Monotonic seconds.
        """
        before = self._written
        new = {id: reason for id, reason in reasons.items() if before.get(id) != reason}
        details = {
            id
            for id, reason in new.items()
            if id in before and reason_code(reason) == reason_code(before[id])
        }
        is_too_soon = len(details) > MANY_REASONS and now < self._again
        if is_too_soon:
            new = {id: reason for id, reason in new.items() if id not in details}
        elif len(details) > MANY_REASONS:
            self._again = now + REWRITE_SECONDS
        self._is_behind = is_too_soon
        if new:
            self._store.explain(new)
        self._written = {id: new.get(id) or before[id] for id in reasons}

    def forget(self, id: str) -> None:
        """The queue itself has taken its reason away."""
        self._written.pop(id, None)

    def rest(self) -> None:
        """Nobody waits."""
        self._written.clear()
        self._is_behind = False

    def left(self, now: float) -> float:
        """In how many seconds those are told that were not; infinity if all were."""
        return max(0.0, self._again - now) if self._is_behind else math.inf
