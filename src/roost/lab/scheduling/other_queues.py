"""The other queues of this machine, mostly of other users. Their demand takes part in each decision here, so
that all daemons together decide as a single one would.

::

    read      the demand of other queues becomes pending tasks of the state, which are never started here
    decide    cards placed for the tasks of others stay free
    publish   own tasks that wait are published (`devices.demand`); a user who does not take an offered card
              is passed over for a time

What other queues claim is bounded: a priority counts only among the tasks of its user, no task counts as
waiting longer than the limit after which age decides, and usage comes from the ledger
(`devices.usage_ledger`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice

from roost.base.errors import Refused
from roost.devices import demand, lease_files
from roost.devices.card import Card
from roost.devices.demand import CardDemand, DemandRecord, QueueDemand
from roost.devices.lease_events import LeaseEvents
from roost.devices.resource_request import MAX_CARDS, ResourceRequest
from roost.lab.policy.card_capacity import Shape, usable
from roost.lab.policy.policy_state import Decision, OtherLease, PolicyState, Rules
from roost.lab.policy.reason_codes import CAPACITY_CODES, reason_code
from roost.lab.policy.running_tasks import expected_end, expected_seconds
from roost.lab.queue.task import PENDING, Task

PATIENCE_SECONDS = 10.0
"""How long a card stays free for a user who does not take it: longer than a daemon needs for a pass."""
_PASSED_OVER_SECONDS, _MAX_PASSED_OVER_SECONDS = 60.0, 3600.0
"""How long a user is passed over who has not taken an offered card; doubled each time."""
_END_STEP_SECONDS = 10.0
"""Published ends are rounded up to this."""


@dataclass(slots=True)
class _Trust:
    """Whether the published demand of one user is believed.

    Args:
        newest: The time of the user's newest lease: a user who takes leases is present.
    """

    newest: float
    offered_since: float | None = None
    """Since when a card is free for the user that they have not taken."""
    num_lapses: int = 0
    passed_over_until: float = 0.0


class OtherQueues:
    """Reads the demand of the other queues, and publishes that of this one."""

    def __init__(self) -> None:
        self._demand_file, self._lease_events = demand.DemandFile(), LeaseEvents()
        self._trust: dict[int, _Trust] = {}
        self._last_pass = -math.inf
        self._users_by_task: dict[str, int] = {}
        """The user of each task of another queue, by task id."""

    @property
    def fd(self) -> int | None:
        """Readable when a lease ends or the demand of another queue changes; None: there is no such event."""
        return self._lease_events.fd

    def with_other_queues(self, state: PolicyState, leases: Sequence[lease_files.CardLease]) -> PolicyState:
        """Returns the state with the leases and the demand of the other queues.

        Args:
            state: The state of this queue alone.
            leases: The leases of all cards, ended ones included.
        """
        if state.now < self._last_pass:  # the clock was set back: a minute could last for days
            self._trust.clear()
        self._last_pass = state.now
        posted = demand.read_demands(exclude=self._demand_file.token)
        self._note_leases(leases)
        trusted = [one for one in posted if self._trust_of(one.uid).passed_over_until <= state.now]
        demanded = [(one, task) for one in trusted for task in _demanded_tasks(one, state)]
        self._users_by_task = {task.id: one.uid for one, task in demanded}
        return replace(
            state,
            pending=[*state.pending, *(task for _, task in demanded)],
            other_leases=_other_leases(leases, {task.id for task in state.live}, posted),
            closed_cards={
                task.id: frozenset(one.record.closed) for one, task in demanded if one.record.closed
            },
            has_other_queues=bool(demanded),
        )

    def watch(self) -> None:
        """Makes `fd` report changes from now on; to be called before the leases are read."""
        self._lease_events.watch()
        self._lease_events.drain()

    def own_decision(self, decision: Decision) -> Decision:
        """Returns the part of a decision about the tasks of this queue."""
        if not self._users_by_task:
            return decision
        placements = tuple(one for one in decision.placements if one.task not in self._users_by_task)
        reasons = {id: why for id, why in decision.reasons.items() if id not in self._users_by_task}
        return replace(decision, placements=placements, reasons=reasons)

    def publish_demand(
        self, state: PolicyState, decision: Decision, *, not_started: Iterable[str] = ()
    ) -> float:
        """Publishes the demand of the tasks that wait, after the others have started. Returns the seconds
        after which another pass is needed, because another user may not have taken an offered card by then.

        Args:
            state: The input of the decision.
            decision: The decision about the tasks of all queues.
            not_started: The ids of tasks that the decision places and that have not started: without their
                demand, another queue could take their cards.
        """
        waiting = {id for id, why in decision.reasons.items() if reason_code(why) in CAPACITY_CODES}
        waiting.update(not_started)
        waiting -= self._users_by_task.keys()
        tasks = [task for task in state.pending if task.id in waiting]
        self._publish(state, tasks)
        return self._update_trust(
            state.now, {self._users_by_task.get(one.task) for one in decision.placements}
        )

    def withdraw(self) -> None:
        """Withdraws the demand: no task of this queue waits for a card."""
        self._demand_file.withdraw()
        self._lease_events.close()
        self._users_by_task = {}

    def _trust_of(self, uid: int) -> _Trust:
        return self._trust.setdefault(uid, _Trust(-math.inf))

    def _note_leases(self, leases: Iterable[lease_files.CardLease]) -> None:
        newest: dict[int, float] = {}
        for lease in leases:
            newest[lease.uid] = max(newest.get(lease.uid, -math.inf), lease.record.since)
        for uid, since in newest.items():
            if since > self._trust_of(uid).newest:
                self._trust[uid] = _Trust(since)

    def _update_trust(self, now: float, offered: set[int | None]) -> float:
        soonest = math.inf
        for uid, trust in self._trust.items():
            if uid not in offered:
                trust.offered_since = None
                continue
            if trust.offered_since is None:
                trust.offered_since = now
            left = trust.offered_since + PATIENCE_SECONDS - now
            if left <= 0:
                seconds = min(_PASSED_OVER_SECONDS * 2.0**trust.num_lapses, _MAX_PASSED_OVER_SECONDS)
                trust.num_lapses = min(trust.num_lapses + 1, 10)
                trust.passed_over_until, trust.offered_since, left = now + seconds, None, 0.0
            soonest = min(soonest, left)
        return soonest

    def _publish(self, state: PolicyState, tasks: Sequence[Task]) -> None:
        if not tasks:
            self._demand_file.withdraw()
            return
        first = nsmallest(demand.MAX_DEMANDS, tasks, key=_demand_order)
        ends = {task.id: expected_end(task, state) for task in state.live if task.cards}
        # Rounded, else ends that move with the time would be published again, and wake all daemons, at each
        # pass.
        known = (
            (id, math.ceil(end / _END_STEP_SECONDS) * _END_STEP_SECONDS)
            for id, end in ends.items()
            if not math.isinf(end)
        )
        record = DemandRecord(
            wants=tuple(_card_demand(task, state) for task in first),
            closed=_closed_cards(state.cards, state.rules)[:MAX_CARDS],
            ends=dict(islice(known, MAX_CARDS)),
        )
        with suppress(
            OSError, Refused
        ):  # no card stays free for us then; taking a lease reports an unusable folder
            self._demand_file.publish(record)


def _demand_order(task: Task) -> tuple[bool, int, float]:
    return task.need.opportunistic, -task.priority, task.submitted


def _closed_cards(cards: Sequence[Card], rules: Rules) -> tuple[str, ...]:
    """Returns the cards on which no task of this queue starts."""
    open_to_us = {card.id for card in usable(cards, rules)} - set(rules.drained)
    return tuple(card.id for card in cards if card.id not in open_to_us)


def _card_demand(task: Task, state: PolicyState) -> CardDemand:
    known = state.expected.get(task.id)
    shape = Shape.from_need(task.need, None if known is None else known.memory_mb)
    return CardDemand(
        cards=shape.cards,
        mb=None if shape.whole else shape.mb,
        least_mb=shape.mb if shape.whole else 0,
        seconds=expected_seconds(task, state),
        since=task.submitted,
        priority=task.priority,
        opportunistic=task.need.opportunistic,
    )


def _demanded_tasks(posted: QueueDemand, state: PolicyState) -> list[Task]:
    """Returns the demand of another queue as tasks with the fields that a decision needs."""
    user, rules = lease_files.user_name(posted.uid), state.rules
    oldest = state.now - min(rules.longest_wait, rules.longest_wait_of_several)
    return [
        Task(
            id=f"{posted.uid}-{posted.token}/{number}",
            name=f"a task of {user}",
            package="",
            user=user,
            state=PENDING,
            need=ResourceRequest(
                cards=want.cards,
                memory_mb=want.mb or want.least_mb or None,
                whole=want.mb is None,
                time_limit=want.seconds,
                opportunistic=want.opportunistic,
            ),
            priority=want.priority,
            submitted=max(oldest, want.since),
        )
        for number, want in enumerate(posted.record.wants)
    ]


def _other_leases(
    leases: Iterable[lease_files.CardLease], own: Container[str], posted: Sequence[QueueDemand]
) -> dict[str, list[OtherLease]]:
    """Returns the leases of others by card, with their published ends."""
    ends = {(one.uid, task): end for one in posted for task, end in one.record.ends.items()}
    found: defaultdict[str, list[OtherLease]] = defaultdict(list)
    for lease in leases:
        record = lease.record
        if lease.is_live and record.task not in own:
            end = ends.get((lease.uid, record.task), math.inf)
            found[lease.card].append(OtherLease(lease.user, record.mb, end))
    return found
