"""The other queues of this machine, those of other users among them: what they want comes before what they
would get after us, so that each daemon alone decides as one for all would.

::

    look      their wants become tasks beside ours (`policy.state.State.pending`), which nobody starts here
    decide    what is theirs to take stays free
    answer    ours that wait are posted (`devices.wants`); who does not take what is his is passed over

What others say is bounded: a priority counts among the tasks of their user, nobody has waited longer than we
may without going first, and what they have used is in the ledger (`devices.usage`).
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
from roost.lab.policy.card_capacity import Shape, usable
from roost.lab.policy.policy_state import Decision, OtherLease, PolicyState, Rules
from roost.lab.policy.reason_codes import CAPACITY_CODES, reason_code
from roost.lab.policy.running_tasks import expected_end, expected_seconds
from roost.lab.queue.task import PENDING, Need, Task

PATIENCE_SECONDS = 10.0
"""How long a card stays free for somebody who does not take it: longer than a daemon may take to look."""
_PASSED_OVER_SECONDS, _LONGEST_SECONDS = 60.0, 3600.0
"""For how long somebody is passed over who has not; twice as long each time."""
_END_STEP_SECONDS = 10.0
"""Seconds; ends are told no finer."""


@dataclass(slots=True)
class _Trust:
    """What we make of the wants of one user.

    Args:
        newest: When his newest lease was taken: whoever takes one is there.
    """

    newest: float
    offered: float | None = None
    """Since when there is a card for him that he has not taken."""
    lapses: int = 0
    passed_over_until: float = 0.0


class OtherQueues:
    """What one queue knows of the others, and they of it."""

    def __init__(self) -> None:
        self._post, self._changes = demand.DemandFile(), LeaseEvents()
        self._trust: dict[int, _Trust] = {}
        self._looked = -math.inf
        self._theirs: dict[str, int] = {}
        """The users of their tasks, by id."""

    @property
    def fd(self) -> int | None:
        """Readable when others leave a card, or want something else; None: nobody tells."""
        return self._changes.fd

    def joined(self, state: PolicyState, leases: Sequence[lease_files.CardLease]) -> PolicyState:
        """The state with what others hold and want.

        Args:
            state: Of our queue alone.
            leases: Of all cards, those that have ended among them.
        """
        if state.now < self._looked:  # the clock was put back: what was to last a minute would last for days
            self._trust.clear()
        self._looked = state.now
        posted = demand.read_demands(exclude=self._post.token)
        self._note_leases(leases)
        believed = [one for one in posted if self._of(one.uid).passed_over_until <= state.now]
        theirs = [(one, task) for one in believed for task in _demanded_tasks(one, state)]
        self._theirs = {task.id: one.uid for one, task in theirs}
        return replace(
            state,
            pending=[*state.pending, *(task for _, task in theirs)],
            held=_other_leases(leases, {task.id for task in state.live}, posted),
            closed={task.id: frozenset(one.record.closed) for one, task in theirs if one.record.closed},
            shared=bool(theirs),
        )

    def watch(self) -> None:
        """From now on `fd` tells what changes; it is to be called before the leases are looked at."""
        self._changes.watch()
        self._changes.drain()

    def ours(self, decision: Decision) -> Decision:
        """What of a decision is ours to do."""
        if not self._theirs:
            return decision
        placements = tuple(one for one in decision.placements if one.task not in self._theirs)
        reasons = {id: why for id, why in decision.reasons.items() if id not in self._theirs}
        return replace(decision, placements=placements, reasons=reasons)

    def answer(self, state: PolicyState, decision: Decision) -> float:
        """Posts what waits, once the rest has started; gives in how many seconds it is to be looked at again,
        as somebody may not have taken by then what is his.

        Args:
            state: As it was decided on.
            decision: The whole.
        """
        waiting = {id for id, why in decision.reasons.items() if reason_code(why) in CAPACITY_CODES}
        waiting -= self._theirs.keys()
        tasks = [task for task in state.pending if task.id in waiting]
        self._tell(state, tasks)
        return self._have_patience(state.now, {self._theirs.get(one.task) for one in decision.placements})

    def rest(self) -> None:
        """Nothing of ours waits for a card."""
        self._post.withdraw()
        self._changes.close()
        self._theirs = {}

    def _of(self, uid: int) -> _Trust:
        return self._trust.setdefault(uid, _Trust(-math.inf))

    def _note_leases(self, leases: Iterable[lease_files.CardLease]) -> None:
        newest: dict[int, float] = {}
        for lease in leases:
            newest[lease.uid] = max(newest.get(lease.uid, -math.inf), lease.record.since)
        for uid, since in newest.items():
            if since > self._of(uid).newest:
                self._trust[uid] = _Trust(since)

    def _have_patience(self, now: float, offered: set[int | None]) -> float:
        soonest = math.inf
        for uid, trust in self._trust.items():
            if uid not in offered:
                trust.offered = None
                continue
            if trust.offered is None:
                trust.offered = now
            left = trust.offered + PATIENCE_SECONDS - now
            if left <= 0:
                seconds = min(_PASSED_OVER_SECONDS * 2.0**trust.lapses, _LONGEST_SECONDS)
                trust.lapses = min(trust.lapses + 1, 10)
                trust.passed_over_until, trust.offered, left = now + seconds, None, 0.0
            soonest = min(soonest, left)
        return soonest

    def _tell(self, state: PolicyState, tasks: Sequence[Task]) -> None:
        if not tasks:
            self._post.withdraw()
            return
        first = nsmallest(demand.MAX_DEMANDS, tasks, key=_demand_order)
        ends = {task.id: expected_end(task, state) for task in state.live if task.cards}
        # Else what is about to end would be told anew, and everybody woken, at each look.
        known = (
            (id, math.ceil(end / _END_STEP_SECONDS) * _END_STEP_SECONDS)
            for id, end in ends.items()
            if not math.isinf(end)
        )
        told = DemandRecord(
            wants=tuple(_card_demand(task, state) for task in first),
            closed=_closed_cards(state.cards, state.rules)[: demand.MAX_CARDS],
            ends=dict(islice(known, demand.MAX_CARDS)),
        )
        with suppress(
            OSError, Refused
        ):  # nobody waits for us then; a folder that will not do is told by leases
            self._post.publish(told)


def _demand_order(task: Task) -> tuple[bool, int, float]:
    return task.need.opportunistic, -task.priority, task.submitted


def _closed_cards(cards: Sequence[Card], rules: Rules) -> tuple[str, ...]:
    """Cards on which nothing of this queue begins."""
    open_to_us = {card.id for card in usable(cards, rules)} - set(rules.drained)
    return tuple(card.id for card in cards if card.id not in open_to_us)


def _card_demand(task: Task, state: PolicyState) -> CardDemand:
    known = state.expected.get(task.id)
    shape = Shape.of(task.need, None if known is None else known.memory_mb)
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
    """What somebody wants, as tasks that need no more than their time and cards to be decided on."""
    user, rules = lease_files.user_name(posted.uid), state.rules
    oldest = state.now - min(rules.longest_wait, rules.longest_wait_of_several)
    return [
        Task(
            id=f"{posted.uid}-{posted.token}/{number}",
            name=f"a task of {user}",
            package="",
            user=user,
            state=PENDING,
            need=Need(
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
    leases: Iterable[lease_files.CardLease], ours: Container[str], posted: Sequence[QueueDemand]
) -> dict[str, list[OtherLease]]:
    """What others hold, until when they say."""
    ends = {(one.uid, task): end for one in posted for task, end in one.record.ends.items()}
    found: defaultdict[str, list[OtherLease]] = defaultdict(list)
    for lease in leases:
        said = lease.record
        if lease.is_live and said.task not in ours:
            end = ends.get((lease.uid, said.task), math.inf)
            found[lease.card].append(OtherLease(lease.user, said.mb, end))
    return found
