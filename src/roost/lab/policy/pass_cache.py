"""The cards and live tasks as one decision has computed them, cached for the next one."""

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
"""So many removed objects are looked for; where more are gone, everything is computed again."""


class CardCache:
    """The cards with their tasks and leases.

    Args:
        state: The input of the decision.
    """

    def __init__(self, state: PolicyState) -> None:
        self.free_capacity = FreeCapacity(state)
        self.running_tasks = RunningTasks(state, self.free_capacity)
        self.release_times = ReleaseTimes(self.free_capacity, self.running_tasks.end)
        self.capacities = [mb for mb, _ in self.free_capacity.largest]
        """Memory that tasks may have of each card, the smallest first."""
        self.cards = [occupancy.card for occupancy in self.free_capacity.occupancies]
        self._live = list(state.live)
        self._rules, self._cards, self._expected = state.rules, list(state.cards), dict(state.expected)
        self._other_leases = {card: list(leases) for card, leases in state.other_leases.items()}

    def update(self, state: PolicyState) -> bool:
        """Advances to another state. Returns False, and is unusable then, if more than live tasks differ, or
        more than a few of these."""
        if (self._rules, self._other_leases, self._expected) != (
            state.rules,
            state.other_leases,
            state.expected,
        ):
            return False
        if self._cards != list(state.cards):
            return False
        differing = difference(self._live, state.live)
        if differing is None or not self.free_capacity.update(*differing):
            return False
        self.running_tasks.update(state, *differing)
        self._live = list(state.live)
        return True


def difference(before: Sequence[_T], now: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]] | None:
    """Returns which objects are gone and which are new, if the others have kept their order and the new ones
    follow them; None where that is not so, or many are gone. Compares identity."""
    gone: list[_T] = []
    kept = 0
    while len(gone) <= _MAX_GONE:
        at = kept + len(gone)
        pairs = map(is_not, islice(before, at, None), islice(now, kept, None))
        same = next(compress(count(), pairs), None)
        if same is None:  # one list is the beginning of the other
            left = len(before) - at, len(now) - kept
            rest = min(left)
            gone += before[at + rest :]
            return gone, now[kept + rest :]
        kept += same
        gone.append(before[kept + len(gone)])
    return None
