"""Live tasks: when they end, and what they count for."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from roost.lab.policy.card_capacity import FreeCapacity
from roost.lab.policy.policy_state import Expectation, PolicyState
from roost.lab.queue.task import STOPPING, Task

MAX_CHARGED_SECONDS = 3600.0
"""What a live task counts for in the fair share is what it has used, and what it will still use; of that an
hour at most, and where its end is not known an hour."""
GRACE_SECONDS = 60.0
"""A task whose time is over is expected to be gone by then."""
_NOTHING = Expectation()
_NOT_FIXED = -math.inf


def expected_seconds(task: Task, state: PolicyState) -> float | None:
    """How long a task takes at most, or probably."""
    limit = task.need.time_limit
    return limit if limit is not None else state.expected.get(task.id, _NOTHING).seconds


def expected_end(task: Task, state: PolicyState) -> float:
    """When a live task ends; infinity where that is not known."""
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
    """Those of one state; goes on to the next one by what has changed.

    Args:
        state: What is decided on.
        room: Of the same state.
    """

    def __init__(self, state: PolicyState, room: FreeCapacity) -> None:
        self.state, self._room = state, room
        self.sweeps: Counter[str] = Counter()
        """How many of each sweep live."""
        self.on_cpu: dict[str, Task] = {}
        self._on_cards: dict[str, tuple[Task, str, float]] = {}
        """With their user and of how many cards; in the order of the state, as their ends."""
        self._ends: dict[str, float] = {}
        """`_NOT_FIXED` where it moves on with the time."""
        self._first: float | None = None
        """The first end; None: not looked for."""
        self._started: dict[str, float] = {}
        """The ends of those that were placed since."""
        self._add(state.live)

    def follow(self, state: PolicyState, gone: Iterable[Task], come: Iterable[Task]) -> None:
        """Goes on to a state that differs by these."""
        self.state = state
        self._started.clear()
        self._first = None
        for task in gone:
            if task.sweep is not None:
                self.sweeps[task.sweep] -= 1
            self.on_cpu.pop(task.id, None)
            self._on_cards.pop(task.id, None)
            self._ends.pop(task.id, None)
        self._add(come)

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.sweep is not None:
                self.sweeps[task.sweep] += 1
            if not task.need.cards:
                self.on_cpu[task.id] = task
            if task.cards:
                self._on_cards[task.id] = task, task.user, self.share(task)
                self._ends[task.id] = self._fixed_end(task)

    def _fixed_end(self, task: Task) -> float:
        if task.state == STOPPING or task.started is None:
            return _NOT_FIXED
        seconds = expected_seconds(task, self.state)
        return math.inf if seconds is None else task.started + seconds

    def starts(self, task: Task, end: float) -> None:
        """It is placed now."""
        self._started[task.id] = end

    def end(self, task: Task) -> float:
        """When a task on a card ends; infinity where that is not known."""
        end = self._started.get(task.id)
        if end is None:
            end = self._ends[task.id]
            if end <= self.state.now:
                return expected_end(task, self.state)
        return end

    @property
    def first(self) -> float:
        """The first end, or what stands for one that moves on with the time."""
        if self._first is None:
            self._first = min(self._ends.values(), default=math.inf)
        return self._first

    @property
    def is_steady(self) -> bool:
        """Whether all ends stay what they are until one has come."""
        return self.first > self.state.now

    @property
    def soonest(self) -> float | None:
        """When a card becomes free next; None where that is not known."""
        ends = [self.first] if self.is_steady else [self.end(task) for task, *_ in self._on_cards.values()]
        soonest = min(ends)
        return None if math.isinf(soonest) else soonest

    def charges(self) -> dict[str, float]:
        """What each user has had of the cards, and is about to have."""
        state, now = self.state, self.state.now
        charges = defaultdict(float, state.usage)
        for (task, user, share), end in zip(self._on_cards.values(), self._ends.values(), strict=True):
            left = (end if end > now else expected_end(task, state)) - now
            charges[user] += (left if left < MAX_CHARGED_SECONDS else MAX_CHARGED_SECONDS) * share
        for card, leases in state.held.items():
            for lease in leases:
                left = max(0.0, min(lease.end - now, MAX_CHARGED_SECONDS))
                charges[lease.user] += left * self._part(card, lease.mb)
        return charges

    def share(self, task: Task) -> float:
        """Of how many cards, a part of the memory counted as that part."""
        mb, places = task.reserved_mb, self._room.by_id
        if mb is None:
            return float(len(task.cards))
        if len(task.cards) == 1 and task.cards[0] in places:
            return mb / places[task.cards[0]].most
        return sum([mb / places[card].most for card in task.cards if card in places])

    def _part(self, card: str, mb: int | None) -> float:
        """The same of somebody else's lease."""
        if mb is None:
            return 1.0
        return mb / self._room.by_id[card].most if card in self._room.by_id else 0.0
