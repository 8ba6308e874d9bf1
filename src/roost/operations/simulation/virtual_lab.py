"""A lab in virtual time: the policy of the real one, with tasks that only take time."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from roost.devices.card import Card
from roost.devices.usage_ledger import HALF_LIFE_SECONDS
from roost.lab.policy.card_capacity import capacity_mb
from roost.lab.policy.decision import Policy
from roost.lab.policy.policy_state import Decision, Placement, PolicyState, Rules
from roost.lab.queue.task import PENDING, RUNNING, STOPPED, SUCCEEDED, Task


@dataclass
class Job:
    """A task of the simulation and its progress."""

    task: Task
    seconds: float
    """The remaining run time."""
    started: float | None = None
    """The time of its first start."""
    ended: float | None = None
    reason: str = ""
    """Why the task waited just before it started, or why it still waits."""

    @property
    def waited(self) -> float | None:
        """Seconds from the submission, or from the begin time, to the start."""
        if self.started is None:
            return None
        return self.started - max(self.task.submitted, self.task.begin or 0.0)


@dataclass
class VirtualLedger:
    """GPU-seconds of each user: decayed with age, and in total."""

    at: float = 0.0
    decayed: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    total: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def advance(self, now: float, rates: Mapping[str, float]) -> None:
        """Adds the usage up to a time, until which each user has had the given number of cards."""
        seconds = now - self.at
        if seconds <= 0:
            return
        kept = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        for user in self.decayed:
            self.decayed[user] *= kept
        for user, rate in rates.items():
            self.decayed[user] += rate * seconds
            self.total[user] += rate * seconds
        self.at = now


class VirtualLab:
    """Runs jobs to their end.

    A task succeeds after its run time, or is stopped at its time limit. A preempted task later continues
    where it was. Tasks do not fail.

    Args:
        jobs: In any order.
        cards: Of the machine.
        rules: Of the machine.
        decide: The policy; None: that of the real lab.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        cards: Sequence[Card],
        rules: Rules,
        *,
        decide: Callable[[PolicyState], Decision] | None = None,
    ) -> None:
        self.jobs = {job.task.id: job for job in jobs}
        self.cards, self.rules, self._decide = cards, rules, decide or Policy().decide
        self._capacities = {card.id: capacity_mb(card, rules) for card in cards}
        self.pending: dict[str, Task] = {}
        self.live: dict[str, Task] = {}
        self.states: dict[str, str] = {}
        """Of all that were submitted."""
        self.ended = 0
        """So many have."""
        self._waited_for = {other for job in self.jobs.values() for other in job.task.dependencies}
        self.ledger = VirtualLedger()
        self._rates: defaultdict[str, float] = defaultdict(float)
        self._events = [(job.task.submitted, job.task.id) for job in self.jobs.values()]
        for moment in self._moments():
            self._events.append((moment, ""))
        heapq.heapify(self._events)
        self.now = self.ledger.at = min((at for at, _ in self._events), default=0.0)

    def _moments(self) -> Iterator[float]:
        """Yields the times at which something changes although no task arrives or ends."""
        yield from (job.task.begin for job in self.jobs.values() if job.task.begin is not None)
        yield from (moment for window in self.rules.reserved for moment in (window.begin, window.end))

    def passes(self) -> Iterator[tuple[PolicyState, Decision]]:
        """Yields each state with its decision; tasks that are pending after the last decision never start."""
        reasons: Mapping[str, str] = {}
        while self._events:
            self._advance()
            if not self.pending:
                continue  # no task could start
            state = self._state()
            decision = self._decide(state)
            for placement in decision.placements:
                self._start(placement, reasons.get(placement.task, ""))
            for evicted in decision.preemptions:
                self._evict(evicted)
            reasons = decision.reasons
            yield state, decision
        for id, reason in reasons.items():
            self.jobs[id].reason = reason

    def _state(self) -> PolicyState:
        return PolicyState(
            now=self.now,
            pending=list(self.pending.values()),
            live=list(self.live.values()),
            cards=self.cards,
            usage=dict(self.ledger.decayed),
            dependency_states={id: self.states[id] for id in self._waited_for if id in self.states},
            rules=self.rules,
        )

    def _advance(self) -> None:
        """Advances to the time of the next event, and processes all events of that time."""
        self.now = max(self.now, self._events[0][0])
        self.ledger.advance(self.now, self._rates)
        while self._events and self._events[0][0] <= self.now:
            _, id = heapq.heappop(self._events)
            if (job := self.jobs.get(id)) is None:
                continue
            if id in self.live:
                # For a preempted and restarted task this may be the event of its earlier end.
                if self._end_of(id) <= self.now:
                    self._end(job)
            elif id not in self.states:
                self._enqueue(job.task)

    def _enqueue(self, task: Task) -> None:
        self.pending[task.id] = task
        self.states[task.id] = PENDING

    def _end(self, job: Job) -> None:
        id, limit = job.task.id, job.task.need.time_limit
        self._release(id)
        self.states[id] = SUCCEEDED if limit is None or job.seconds <= limit else STOPPED
        self.ended += 1
        job.ended = self.now

    def _end_of(self, id: str) -> float:
        task = self.live[id]
        assert task.started is not None
        limit = task.need.time_limit
        seconds = self.jobs[id].seconds
        return task.started + (seconds if limit is None else min(seconds, limit))

    def _start(self, placement: Placement, reason: str) -> None:
        task = self.pending.pop(placement.task)
        job = self.jobs[task.id]
        if job.started is None:
            job.started, job.reason = self.now, reason
        self.live[task.id] = msgspec.structs.replace(
            task, state=RUNNING, cards=placement.cards, reserved_mb=placement.mb, started=self.now
        )
        self.states[task.id] = RUNNING
        self._rates[task.user] += self._share(placement)
        heapq.heappush(self._events, (self._end_of(task.id), task.id))

    def _release(self, id: str) -> None:
        task = self.live.pop(id)
        self._rates[task.user] -= self._share(Placement(id, task.cards, task.reserved_mb))

    def _share(self, placement: Placement) -> float:
        mb = placement.mb
        if mb is None:
            return float(len(placement.cards))
        return sum(mb / self._capacities[card] for card in placement.cards)

    def _evict(self, id: str) -> None:
        task, job = self.live[id], self.jobs[id]
        assert task.started is not None
        job.seconds -= self.now - task.started
        self._release(id)
        self._enqueue(job.task)
        heapq.heappush(self._events, (self.now, ""))  # a pass for the capacity that it frees
