"""One pass over the queue: what the machine has, what the policy says of it, and doing that."""

from __future__ import annotations

import errno
import math
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from roost.base.errors import Refused, RoostError
from roost.devices import lease_files, usage_ledger
from roost.devices.card import Card
from roost.devices.lease import CardsBusy
from roost.lab.executors.executor import Executor
from roost.lab.memory.expectations import Expectations
from roost.lab.policy.card_capacity import capacity_mb, shared_mb, spare_mb, usable
from roost.lab.policy.decision import Policy
from roost.lab.policy.policy_state import Placement, PolicyState, Rules
from roost.lab.policy.reason_codes import CARDS, DISK, MACHINE, RACE, TAKEN, reason_code
from roost.lab.queue.queue_store import Raced, Store
from roost.lab.queue.task import EVICT, FAILED, PENDING, Task
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.other_queues import OtherQueues
from roost.lab.scheduling.reason_writer import ReasonWriter
from roost.lab.scheduling.site_rules import read_rules
from roost.lab.scheduling.unfinished_tasks import UnfinishedTaskCache, UnfinishedTasks

_MACHINE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)
"""What the machine has too little of, whatever the task is."""
_DISK_ERRORS = (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)
"""A disk that may come back: that of the task's package, others may be on another one."""
_RETRY_SECONDS, _SOON_SECONDS = 5.0, 0.05


def card_capacities(store: Store, ask: Callable[[], list[Card]], card_mb: int) -> tuple[int, int]:
    """What tasks may have of a card of so many MB, and of the largest that they may have; where the driver
    does not tell, no card is larger."""
    rules = read_rules(store)
    own_mb = shared_mb(card_mb, rules)
    with suppress(RoostError, OSError):
        return own_mb, max((capacity_mb(card, rules) for card in usable(ask(), rules)), default=own_mb)
    return own_mb, own_mb


class Scheduler:
    """Starts what the policy lets start.

    Args:
        store: The queue.
        executor: Starts the tasks.
        attempts: Takes those that were started.
        ask: The cards as they are now.
    """

    def __init__(
        self, store: Store, executor: Executor, attempts: Attempts, ask: Callable[[], list[Card]]
    ) -> None:
        self._store, self._executor, self._attempts, self._ask = store, executor, attempts, ask
        self._standing, self._policy = UnfinishedTaskCache(store), Policy()
        self._neighbours = OtherQueues()
        self._expectations = Expectations(store)
        self._explained = ReasonWriter(store)
        self._deaf_until = 0.0

    def run(self) -> float | None:
        """One pass; gives in how many seconds another one may find more room although nobody wakes us. None:
        nobody waits."""
        tasks = self._standing.look()
        if not tasks.pending:
            self._explained.rest()
            self._neighbours.rest()
            self._policy = Policy()  # the last one keeps those of which it has decided
            return None
        state, unseen = self._state(tasks)
        whole = self._policy.decide(state)
        decision = self._neighbours.ours(whole)
        by_id = {task.id: task for task in tasks.pending}
        cards = {card.id: card for card in state.cards}
        reasons = {**decision.reasons, **unseen}
        self._explained.tell(reasons, now=time.monotonic())  # before the starts, which take their time
        waits, has_ended = self._start(decision.placements, by_id, cards, state.rules)
        for id in decision.evictions:
            with suppress(Refused):  # it has ended meanwhile
                self._store.ask(id, EVICT)
        if decision.evictions:
            self._attempts.settle([])  # which passes it on
        if waits:
            reasons |= waits
            self._explained.tell(reasons, now=time.monotonic())
        patience = min(self._neighbours.answer(state, whole), self._explained.left(time.monotonic()))
        return (
            0.0 if has_ended else min(patience, _seconds_until_next_pass(tasks.pending, reasons, state.now))
        )

    @property
    def fd(self) -> int | None:
        """Readable when another pass may find more room, because of others; None: nobody tells, or a start
        has failed just now, as what it has touched would wake us for the next one, and so on."""
        return self._neighbours.fd if time.monotonic() >= self._deaf_until else None

    def close(self) -> None:
        """What waits, waits for another daemon."""
        self._neighbours.rest()

    def _state(self, tasks: UnfinishedTasks) -> tuple[PolicyState, dict[str, str]]:
        """What is decided on; and why of those tasks that it leaves out, because nobody can tell now what
        the cards are like."""
        pending, live = tasks
        cards: list[Card] = []
        leases: list[lease_files.CardLease] = []
        used: dict[str, float] = {}
        unseen: dict[str, str] = {}
        wants_cards = any(task.need.cards for task in pending)
        now, rules = time.time(), read_rules(self._store)
        if wants_cards:
            try:
                self._neighbours.watch()
                cards = self._ask()
                leases = lease_files.all_leases(
                    lease_files.leases_folder(), first=[card.id for card in cards]
                )
                used = usage_ledger.decayed_usage(now, leases=leases)
            except (RoostError, OSError) as error:  # tasks of the CPU do not wait for that
                unseen = {task.id: f"{CARDS}: {error}" for task in pending if task.need.cards}
                pending = [task for task in pending if not task.need.cards]
                cards, wants_cards = [], False
        state = PolicyState(
            now=now,
            pending=pending,
            live=live,
            cards=all_without_leased_processes(cards, leases),
            usage=used,
            expected=self._expectations.of([*pending, *live], cards, rules) if wants_cards else {},
            saved={task.id: at for task in live if task.need.opportunistic and (at := _last_saved(task))},
            states=self._store.states([id for task in pending for id in task.others]),
            rules=rules,
        )
        if wants_cards:
            return self._neighbours.joined(state, leases), unseen
        self._neighbours.rest()
        return state, unseen

    def _start(
        self,
        placements: Sequence[Placement],
        tasks: Mapping[str, Task],
        cards: Mapping[str, Card],
        rules: Rules,
    ) -> tuple[dict[str, str], bool]:
        """Starts what was placed: all of it before one is waited for. Gives why those wait that could not be
        started, and whether another one has ended already."""
        waits: dict[str, str] = {}
        coming: list[tuple[Task, Callable[[], None]]] = []
        started: list[Task] = []
        why = ""
        for task in self._begun(placements, tasks, cards, rules, waits):
            if reason_code(why) == MACHINE:  # the next one would fare no better
                waits[task.id] = self._put_back(task, why)
                continue
            chosen = [cards[id] for id in task.cards]
            try:
                try:
                    coming.append((task, self._executor.start(task, chosen)))
                except OSError:
                    if not coming:
                        raise
                    started += self._stand(coming, waits)  # what these have taken to come up is free then
                    coming = [(task, self._executor.start(task, chosen))]
            except Exception as error:  # noqa: BLE001  - one task that cannot be started holds up no other
                why = waits[task.id] = self._not_started(task, error)
        started += self._stand(coming, waits)
        return {id: why for id, why in waits.items() if why}, self._attempts.look_at(started)

    def _stand(self, coming: list[tuple[Task, Callable[[], None]]], waits: dict[str, str]) -> list[Task]:
        """Waits for those that come up, and leaves none in ``coming``; gives those that stand. Why others
        wait is added to ``waits``."""
        started = []
        while coming:
            task, stands = coming.pop(0)
            try:
                stands()
                started.append(task)
            except Exception as error:  # noqa: BLE001  - as above
                waits[task.id] = self._not_started(task, error)
        return started

    def _begun(
        self,
        placements: Sequence[Placement],
        tasks: Mapping[str, Task],
        cards: Mapping[str, Card],
        rules: Rules,
        waits: dict[str, str],
    ) -> list[Task]:
        """The placed tasks as they are with their cards, in one transaction; why others wait is added to
        ``waits``."""
        begun: list[Task] = []
        if not placements:
            return begun
        with self._store.together():
            for placement in placements:
                chosen = [cards[id] for id in placement.cards]
                self._explained.forget(placement.task)  # to start takes it away, whatever follows
                spare = max((spare_mb(card, rules) for card in chosen), default=0)
                most = rules.most_per_card
                try:
                    task = tasks[placement.task]
                    begun.append(
                        self._store.start(task, chosen, placement.mb, most_per_card=most, spare_mb=spare)
                    )
                except Raced:
                    waits[placement.task] = f"{RACE}: somebody was quicker; it is looked at again at once"
        return begun

    def _not_started(self, begun: Task, error: Exception) -> str:
        """Writes down that a task was not started; gives why it waits, empty if it does not."""
        if not isinstance(error, CardsBusy):
            self._deaf_until = time.monotonic() + _RETRY_SECONDS
        if isinstance(error, Refused):
            return self._put_back(begun, f"{TAKEN}: {error}")
        if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
            return self._put_back(begun, f"{MACHINE}: {error}")
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return self._put_back(begun, f"{DISK}: {error}")
        if not isinstance(error, RoostError | OSError):
            traceback.print_exception(error)
        try:
            why = f"it could not be started: {error}"
            self._store.move(begun, FAILED, reason=why, ended=time.time())
        except Raced:  # as below
            self._attempts.look_at([begun])
        return ""

    def _put_back(self, begun: Task, why: str) -> str:
        """Lets a task wait of which nothing has begun: that was no attempt."""
        try:
            self._store.move(begun, PENDING, attempt=begun.attempt - 1)
        except Raced:  # it is asked to end: that it has never begun is seen at the next look, which is soon
            self._attempts.look_at([begun])
        return why


def without_leased_processes(card: Card, leases: Sequence[lease_files.CardLease]) -> Card:
    """The card with those processes alone that no lease of their owner speaks for; in trouble, if nobody can
    look at its leases."""
    owners = {one.user for one in leases if not one.blocked}
    users = tuple(user for user in card.users if user.name not in owners)
    trouble = card.trouble or next((one.blocked for one in leases if one.blocked), "")
    return replace(card, users=users, trouble=trouble)


def _last_saved(task: Task) -> float | None:
    """When it saved last, in this attempt: a checkpoint comes into its folder by a rename."""
    try:
        at = (Path(task.package) / "Checkpoints").stat().st_mtime
    except OSError:  # its package is gone
        return None
    return at if task.started is not None and at > task.started else None


def all_without_leased_processes(
    cards: Iterable[Card], leases: Iterable[lease_files.CardLease]
) -> list[Card]:
    """The same of all cards, with what was found in their folders."""
    found: defaultdict[str, list[lease_files.CardLease]] = defaultdict(list)
    for lease in leases:
        if lease.is_live:
            found[lease.card].append(lease)
    return [without_leased_processes(card, found[card.id]) for card in cards]


def _seconds_until_next_pass(pending: Sequence[Task], reasons: Mapping[str, str], now: float) -> float:
    begins = [task.begin - now for task in pending if task.begin is not None and task.begin > now]
    words = set(map(reason_code, reasons.values()))
    if RACE in words:
        return _SOON_SECONDS
    waits_for_others = not words.isdisjoint((TAKEN, MACHINE, DISK))
    may_change = waits_for_others or any(task.need.cards and reasons.get(task.id) for task in pending)
    return max(_SOON_SECONDS, min([_RETRY_SECONDS if may_change else math.inf, *begins]))
