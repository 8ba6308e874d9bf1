"""The live tasks of a scheduling pass: when they end, and what they charge their users."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from roost.lab.policy.card_capacity import FreeCapacity
from roost.lab.policy.host_share import NO_SHARE, HostShare
from roost.lab.policy.policy_state import Expectation, PolicyState
from roost.lab.queue.task import STOPPING, Task

MAX_CHARGED_SECONDS = 3600.0
"""In the fair share a live task counts for what it has used and what it will still use: for an hour of that
at most, and for an hour if its end is not known."""
GRACE_SECONDS = 60.0
"""A task that is over its time limit, or is being stopped, is expected to end within this time."""
_NOTHING = Expectation()
_NOT_FIXED = -math.inf


def expected_seconds(task: Task, state: PolicyState) -> float | None:
    """Returns the run time of a task: its time limit, else the prediction, else None."""
    limit = task.need.time_limit
    return limit if limit is not None else state.expected.get(task.id, _NOTHING).seconds


def expected_end(task: Task, state: PolicyState) -> float:
    """Returns the end of a live task in unix seconds; infinity where it is not known."""
    if task.state == STOPPING:
        return state.now + GRACE_SECONDS
    seconds = expected_seconds(task, state)
    if seconds is None:
        return math.inf
    end = (task.started if task.started is not None else state.now) + seconds
    if end > state.now:
        return end
    return state.now + GRACE_SECONDS if task.need.time_limit is not None else math.inf


class RunningTasks:
    """The live tasks of a state, updated to the next state by the difference.

    Args:
        state: The input of the decision.
        free_capacity: The cards of the same state.
    """

    def __init__(self, state: PolicyState, free_capacity: FreeCapacity) -> None:
        self.state, self._free_capacity = state, free_capacity
        self.sweeps: Counter[str] = Counter()
        """The number of live tasks of each sweep."""
        self.on_host: dict[str, Task] = {}
        """The tasks with a share of the host: all without a card, and those that request one."""
        self._on_cards: dict[str, tuple[Task, str, float]] = {}
        """The task, its user and its share of cards; in the order of the state, as `_ends`."""
        self._ends: dict[str, float] = {}
        """By task; `_NOT_FIXED` if the end moves with the current time."""
        self._first_end: float | None = None
        """The first end; None: not computed."""
        self._placed_ends: dict[str, float] = {}
        """The ends of the tasks that were placed in this pass."""
        self._add(state.live)

    def update(self, state: PolicyState, gone: Iterable[Task], come: Iterable[Task]) -> None:
        """Advances to a state that differs by these tasks."""
        self.state = state
        self._placed_ends.clear()
        self._first_end = None
        for task in gone:
            if task.sweep is not None:
                self.sweeps[task.sweep] -= 1
            self.on_host.pop(task.id, None)
            self._on_cards.pop(task.id, None)
            self._ends.pop(task.id, None)
        self._add(come)

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.sweep is not None:
                self.sweeps[task.sweep] += 1
            if HostShare.from_need(task.need) is not NO_SHARE:
                self.on_host[task.id] = task
            if task.cards:
                self._on_cards[task.id] = task, task.user, self.card_share(task)
                self._ends[task.id] = self._fixed_end(task)

    def _fixed_end(self, task: Task) -> float:
        if task.state == STOPPING or task.started is None:
            return _NOT_FIXED
        seconds = expected_seconds(task, self.state)
        return math.inf if seconds is None else task.started + seconds

    def add_placed(self, task: Task, end: float) -> None:
        """Adds a task that is placed in this pass."""
        self._placed_ends[task.id] = end

    def end(self, task: Task) -> float:
        """Returns the end of a task on a card; infinity where it is not known."""
        end = self._placed_ends.get(task.id)
        if end is None:
            end = self._ends[task.id]
            if end <= self.state.now:
                return expected_end(task, self.state)
        return end

    @property
    def first_end(self) -> float:
        """The first end; minus infinity if one moves with the current time."""
        if self._first_end is None:
            self._first_end = min(self._ends.values(), default=math.inf)
        return self._first_end

    @property
    def ends_are_fixed(self) -> bool:
        """Whether all ends stay the same until the first one is reached."""
        return self.first_end > self.state.now

    @property
    def next_end(self) -> float | None:
        """When the next card becomes free; None where that is not known."""
        ends = (
            [self.first_end]
            if self.ends_are_fixed
            else [self.end(task) for task, *_ in self._on_cards.values()]
        )
        next_end = min(ends)
        return None if math.isinf(next_end) else next_end

    def charges(self) -> dict[str, float]:
        """Returns the card-seconds of each user: used, and about to be used by live tasks."""
        state, now = self.state, self.state.now
        charges = defaultdict(float, state.usage)
        for (task, user, card_share), end in zip(self._on_cards.values(), self._ends.values(), strict=True):
            left = (end if end > now else expected_end(task, state)) - now
            charges[user] += (left if left < MAX_CHARGED_SECONDS else MAX_CHARGED_SECONDS) * card_share
        for card, leases in state.other_leases.items():
            for lease in leases:
                left = max(0.0, min(lease.end - now, MAX_CHARGED_SECONDS))
                charges[lease.user] += left * self._lease_share(card, lease.mb)
        return charges

    def card_share(self, task: Task) -> float:
        """Returns how many cards a task has; a part of the memory counts as that part of the card."""
        mb, occupancies = task.reserved_mb, self._free_capacity.by_id
        if mb is None:
            return float(len(task.cards))
        if len(task.cards) == 1 and task.cards[0] in occupancies:
            return mb / occupancies[task.cards[0]].capacity_mb
        return sum([mb / occupancies[card].capacity_mb for card in task.cards if card in occupancies])

    def _lease_share(self, card: str, mb: int | None) -> float:
        """Returns the same for another lease."""
        if mb is None:
            return 1.0
        return mb / self._free_capacity.by_id[card].capacity_mb if card in self._free_capacity.by_id else 0.0
