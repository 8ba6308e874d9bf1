"""A lab in virtual time: the policy of the real one, tasks that only take time, and no clock."""

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
from roost.lab.policy.policy_state import Decision, Placement, Rules, State
from roost.lab.queue.task import PENDING, RUNNING, STOPPED, SUCCEEDED, Task


@dataclass
class Job:
    """A task, and what becomes of it."""

    task: Task
    seconds: float
    """That it still has to run."""
    started: float | None = None
    """When it started first."""
    ended: float | None = None
    reason: str = ""
    """Why it waited, just before it started, or waits."""

    @property
    def waited(self) -> float | None:
        """Seconds, those before the moment at which it was to begin left out."""
        if self.started is None:
            return None
        return self.started - max(self.task.submitted, self.task.begin or 0.0)


@dataclass
class VirtualLedger:
    """GPU-seconds of each user, the older the less, and in all."""

    at: float = 0.0
    decayed: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    total: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def advance(self, now: float, rates: Mapping[str, float]) -> None:
        """Up to a time, until which each user has had so many cards."""
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

    A task succeeds after its time, or is stopped at its limit. One that makes room for others goes on later
    where it was. Tasks do not fail.

    Args:
        jobs: Whatever their order.
        cards: Of the machine.
        rules: Of the machine.
        decide: The policy; None: the real one.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        cards: Sequence[Card],
        rules: Rules,
        *,
        decide: Callable[[State], Decision] | None = None,
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
        self._waited_for = {other for job in self.jobs.values() for other in job.task.others}
        self.ledger = VirtualLedger()
        self._rates: defaultdict[str, float] = defaultdict(float)
        self._events = [(job.task.submitted, job.task.id) for job in self.jobs.values()]
        for moment in self._moments():
            self._events.append((moment, ""))
        heapq.heapify(self._events)
        self.now = self.ledger.at = min((at for at, _ in self._events), default=0.0)

    def _moments(self) -> Iterator[float]:
        """At which something changes though nothing comes or ends."""
        yield from (job.task.begin for job in self.jobs.values() if job.task.begin is not None)
        yield from (moment for window in self.rules.reserved for moment in (window.begin, window.end))

    def passes(self) -> Iterator[tuple[State, Decision]]:
        """Every decision, as it was made; those who wait after the last one wait for ever."""
        reasons: Mapping[str, str] = {}
        while self._events:
            self._advance()
            if not self.pending:
                continue  # nobody would start
            state = self._state()
            decision = self._decide(state)
            for placement in decision.placements:
                self._start(placement, reasons.get(placement.task, ""))
            for evicted in decision.evictions:
                self._evict(evicted)
            reasons = decision.reasons
            yield state, decision
        for id, reason in reasons.items():
            self.jobs[id].reason = reason

    def _state(self) -> State:
        return State(
            now=self.now,
            pending=list(self.pending.values()),
            live=list(self.live.values()),
            cards=self.cards,
            usage=dict(self.ledger.decayed),
            states={id: self.states[id] for id in self._waited_for if id in self.states},
            rules=self.rules,
        )

    def _advance(self) -> None:
        """To the next moment at which something happens, and all that happens then."""
        self.now = max(self.now, self._events[0][0])
        self.ledger.advance(self.now, self._rates)
        while self._events and self._events[0][0] <= self.now:
            _, id = heapq.heappop(self._events)
            if (job := self.jobs.get(id)) is None:
                continue
            if id in self.live:
                # Of one that was stopped and started again this may be the end that it would have had.
                if self._end_of(id) <= self.now:
                    self._end(job)
            elif id not in self.states:
                self._wait(job.task)

    def _wait(self, task: Task) -> None:
        self.pending[task.id] = task
        self.states[task.id] = PENDING

    def _end(self, job: Job) -> None:
        id, limit = job.task.id, job.task.need.time_limit
        self._leave(id)
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

    def _leave(self, id: str) -> None:
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
        self._leave(id)
        self._wait(job.task)
        heapq.heappush(self._events, (self.now, ""))  # the room that it leaves is looked at
