"""What a decision has worked out of its state, kept for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count, islice
from operator import is_not
from typing import TypeVar

from roost.lab.policy.card_capacity import FreeCapacity
from roost.lab.policy.policy_state import PolicyState
from roost.lab.policy.reservation import ReleaseTimes
from roost.lab.policy.running_tasks import RunningTasks

_T = TypeVar("_T")
_MAX_GONE = 64
"""So many are looked for; where more have gone, all is worked out anew."""


class CardCache:
    """The cards, and who is on them.

    Args:
        state: What is decided on.
    """

    def __init__(self, state: PolicyState) -> None:
        self.room = FreeCapacity(state)
        self.living = RunningTasks(state, self.room)
        self.leaving = ReleaseTimes(self.room, self.living.end)
        self.capacities = [mb for mb, _ in self.room.largest]
        """Of the cards, the smallest first."""
        self.cards = [place.card for place in self.room.places]
        self._live = list(state.live)
        self._rules, self._cards, self._expected = state.rules, list(state.cards), dict(state.expected)
        self._held = {card: list(leases) for card, leases in state.held.items()}

    def follow(self, state: PolicyState) -> bool:
        """Goes on to another state; False, and of no use any more, where more than live tasks differ, or more
        than a few of these."""
        if (self._rules, self._held, self._expected) != (state.rules, state.held, state.expected):
            return False
        if self._cards != list(state.cards):
            return False
        differing = difference(self._live, state.live)
        if differing is None or not self.room.follow(*differing):
            return False
        self.living.follow(state, *differing)
        self._live = list(state.live)
        return True


def difference(before: Sequence[_T], now: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]] | None:
    """Which objects have gone and which have come, if the others have kept their order and the new ones are
    behind them; None where that is not so, or many have gone."""
    gone: list[_T] = []
    kept = 0
    while len(gone) <= _MAX_GONE:
        at = kept + len(gone)
        pairs = map(is_not, islice(before, at, None), islice(now, kept, None))
        same = next(compress(count(), pairs), None)
        if same is None:  # one goes on where the other ends
            left = len(before) - at, len(now) - kept
            rest = min(left)
            gone += before[at + rest :]
            return gone, now[kept + rest :]
        kept += same
        gone.append(before[kept + len(gone)])
    return None
