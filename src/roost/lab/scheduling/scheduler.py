"""The scheduling pass: reads the state of queue and cards, decides by the policy, and starts tasks."""

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
from typing import NamedTuple

from roost.base.errors import Refused, RoostError
from roost.base.system import cpu_cores
from roost.devices import lease_files, usage_ledger
from roost.devices.card import Card
from roost.devices.lease import CardsBusy
from roost.lab.executors.executor import Executor
from roost.lab.memory.expectations import Expectations
from roost.lab.policy.card_capacity import capacity_mb, shared_mb, spare_mb, usable
from roost.lab.policy.decision import Policy
from roost.lab.policy.policy_state import Placement, PolicyState, Rules
from roost.lab.policy.reason_codes import CARDS, DISK, MACHINE, RACE, TAKEN, reason_code
from roost.lab.queue.queue_store import ConcurrentChange, QueueStore
from roost.lab.queue.task import ENDED, EVICT, FAILED, LIVE, PENDING, Task
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.other_queues import OtherQueues
from roost.lab.scheduling.reason_writer import ReasonWriter
from roost.lab.scheduling.site_rules import read_rules
from roost.lab.scheduling.thread_share import with_thread_share
from roost.supervisor.guard_start import StartInterrupted

_MACHINE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)
"""The machine lacks a resource for any task."""
_DISK_ERRORS = (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)
"""The disk of the task's package may come back; packages of other tasks may be on other disks."""
_RETRY_SECONDS, _SOON_SECONDS = 5.0, 0.05


def card_capacities(store: QueueStore, read_cards: Callable[[], list[Card]], card_mb: int) -> tuple[int, int]:
    """Returns the memory that tasks may have of a card of so many MB, and of the largest card; without a
    driver the former is taken for both."""
    rules = read_rules(store)
    own_mb = shared_mb(card_mb, rules)
    with suppress(RoostError, OSError):
        return own_mb, max((capacity_mb(card, rules) for card in usable(read_cards(), rules)), default=own_mb)
    return own_mb, own_mb


class UnfinishedTasks(NamedTuple):
    """The tasks at one time, without their session plans, in the order of submission."""

    pending: list[Task]
    live: list[Task]


class UnfinishedTaskCache:
    """The tasks of one queue that have not ended, for repeated reads. A task that has not changed is the same
    object as before. Its reason may be older, as a new reason is no transition.

    Each transition is recorded as an event in the same transaction (`QueueStore`). So every committed change
    of any process is found, and a rolled back one is not.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._seq = 0
        self._tasks: dict[str, Task] = {}
        """In the order of submission; an ended task never comes back."""

    def refresh(self) -> UnfinishedTasks:
        """Returns the tasks as they are now."""
        seq, changed = self._store.tasks_since(self._seq)
        unfinished = self._tasks
        if changed is None:  # read after ``seq``: changes in between are read again next time
            changed = self._store.tasks(states=[PENDING, *LIVE])
            unfinished.clear()
        self._seq = seq
        for task in changed:
            before = unfinished.get(task.id)
            if task.state in ENDED:
                unfinished.pop(task.id, None)
            elif before is None or before.version != task.version:
                unfinished[task.id] = task
        tasks = unfinished.values()
        return UnfinishedTasks(
            [task for task in tasks if task.state == PENDING], [task for task in tasks if task.state in LIVE]
        )


class Scheduler:
    """Runs scheduling passes over a queue.

    Args:
        store: The queue.
        executor: Starts the tasks.
        attempts: Watches the started tasks.
        read_cards: Reads the current state of the cards.
    """

    def __init__(
        self, store: QueueStore, executor: Executor, attempts: Attempts, read_cards: Callable[[], list[Card]]
    ) -> None:
        self._store, self._executor, self._attempts, self._read_cards = store, executor, attempts, read_cards
        self._unfinished_tasks, self._policy = UnfinishedTaskCache(store), Policy()
        self._other_queues = OtherQueues()
        self._expectations = Expectations(store)
        self._reason_writer = ReasonWriter(store)
        self._ignore_events_until = 0.0

    def run(self) -> float | None:
        """Runs one pass. Returns the seconds after which another one may start more tasks without any event;
        None: no task waits."""
        tasks = self._unfinished_tasks.refresh()
        if not tasks.pending:
            self._reason_writer.clear()
            self._other_queues.withdraw()
            self._policy = Policy()  # the old one holds the tasks of its last decision
            return None
        state, unreadable = self._state(tasks)
        decision_of_all = self._policy.decide(state)
        decision = self._other_queues.own_decision(decision_of_all)
        by_id = {task.id: task for task in tasks.pending}
        cards = {card.id: card for card in state.cards}
        reasons = {**decision.reasons, **unreadable}
        self._reason_writer.write(reasons, now=time.monotonic())  # before the starts, which take time
        waits, has_ended = self._start(decision.placements, by_id, cards, state.rules)
        for id in decision.preemptions:
            with suppress(Refused):  # it has ended meanwhile
                self._store.request_stop(id, EVICT)
        if decision.preemptions:
            self._attempts.refresh([])  # passes the requests on
        if waits:
            reasons |= waits
            self._reason_writer.write(reasons, now=time.monotonic())
        seconds = min(
            self._other_queues.publish_demand(state, decision_of_all),
            self._reason_writer.seconds_until_write(time.monotonic()),
        )
        return 0.0 if has_ended else min(seconds, _seconds_until_next_pass(tasks.pending, reasons, state.now))

    @property
    def fd(self) -> int | None:
        """Readable when other processes have changed leases or demand; None: there are no such events, or a
        start has failed just now, whose own changes would cause the next pass at once, and so on."""
        return self._other_queues.fd if time.monotonic() >= self._ignore_events_until else None

    def close(self) -> None:
        """Withdraws the demand; pending tasks wait for another daemon."""
        self._other_queues.withdraw()

    def _state(self, tasks: UnfinishedTasks) -> tuple[PolicyState, dict[str, str]]:
        """Returns the input of the decision, and the reasons of the tasks that it leaves out because the
        cards cannot be read now."""
        pending, live = tasks
        cards: list[Card] = []
        leases: list[lease_files.CardLease] = []
        used: dict[str, float] = {}
        unreadable: dict[str, str] = {}
        needs_cards = any(task.need.cards for task in pending)
        now, rules = time.time(), read_rules(self._store)
        if needs_cards:
            try:
                self._other_queues.watch()
                cards = self._read_cards()
                leases = lease_files.all_leases(
                    lease_files.leases_folder(), first=[card.id for card in cards]
                )
                used = usage_ledger.decayed_usage(now, leases=leases)
            except (RoostError, OSError) as error:  # tasks without a card do not wait for that
                unreadable = {task.id: f"{CARDS}: {error}" for task in pending if task.need.cards}
                pending = [task for task in pending if not task.need.cards]
                cards, needs_cards = [], False
        state = PolicyState(
            now=now,
            pending=pending,
            live=live,
            cards=all_without_leased_processes(cards, leases),
            usage=used,
            expected=self._expectations.for_tasks([*pending, *live], cards, rules) if needs_cards else {},
            last_saved={
                task.id: at for task in live if task.need.opportunistic and (at := _last_saved(task))
            },
            dependency_states=self._store.states([id for task in pending for id in task.dependencies]),
            rules=rules,
        )
        if needs_cards:
            return self._other_queues.with_other_queues(state, leases), unreadable
        self._other_queues.withdraw()
        return state, unreadable

    def _start(
        self,
        placements: Sequence[Placement],
        tasks: Mapping[str, Task],
        cards: Mapping[str, Card],
        rules: Rules,
    ) -> tuple[dict[str, str], bool]:
        """Starts the placed tasks, all of them before one is waited for. Returns the reasons of those that
        could not be started, and whether a started one has ended already."""
        waits: dict[str, str] = {}
        starting: list[tuple[Task, Callable[[], None]]] = []
        started: list[Task] = []
        why = ""
        cores = cpu_cores.usable_cores() if placements else 1
        for marked in self._mark_started(placements, tasks, cards, rules, waits):
            task = with_thread_share(marked, [*cards.values()], rules, cores=cores)
            if reason_code(why) == MACHINE:  # the next one would fail for the same reason
                waits[task.id] = self._put_back(task, why)
                continue
            chosen = [cards[id] for id in task.cards]
            try:
                try:
                    starting.append((task, self._executor.start(task, chosen)))
                except OSError:
                    if not starting:
                        raise
                    started += self._wait_until_started(
                        starting, waits
                    )  # what these have taken to come up is free then
                    starting = [(task, self._executor.start(task, chosen))]
            except Exception as error:  # noqa: BLE001  - a task that cannot be started delays no other
                why = waits[task.id] = self._handle_start_error(task, error)
        started += self._wait_until_started(starting, waits)
        return {id: why for id, why in waits.items() if why}, self._attempts.refresh_tasks(started)

    def _wait_until_started(
        self, starting: list[tuple[Task, Callable[[], None]]], waits: dict[str, str]
    ) -> list[Task]:
        """Waits for the tasks in ``starting`` and empties it. Returns those that have started; the reasons of
        the others are added to ``waits``."""
        started = []
        while starting:
            task, finish = starting.pop(0)
            try:
                finish()
                started.append(task)
            except Exception as error:  # noqa: BLE001  - as above
                waits[task.id] = self._handle_start_error(task, error)
        return started

    def _mark_started(
        self,
        placements: Sequence[Placement],
        tasks: Mapping[str, Task],
        cards: Mapping[str, Card],
        rules: Rules,
        waits: dict[str, str],
    ) -> list[Task]:
        """Marks the placed tasks as starting, with their cards, in one transaction. Returns them; the reasons
        of tasks that were changed meanwhile are added to ``waits``."""
        marked: list[Task] = []
        if not placements:
            return marked
        with self._store.transaction():
            for placement in placements:
                chosen = [cards[id] for id in placement.cards]
                self._reason_writer.forget(
                    placement.task
                )  # the start clears it in the queue, whatever follows
                spare = max((spare_mb(card, rules) for card in chosen), default=0)
                most = rules.most_per_card
                try:
                    task = tasks[placement.task]
                    marked.append(
                        self._store.start(
                            task,
                            chosen,
                            placement.mb,
                            most_per_card=most,
                            spare_mb=spare,
                            memory_reason=self._expectations.memory_reason(task),
                        )
                    )
                except ConcurrentChange:
                    waits[placement.task] = (
                        f"{RACE}: another process has changed it meanwhile; it is considered again at once"
                    )
        return marked

    def _handle_start_error(self, marked: Task, error: Exception) -> str:
        """Records that a task was not started. Returns why it waits; empty if it does not."""
        if not isinstance(error, CardsBusy):
            self._ignore_events_until = time.monotonic() + _RETRY_SECONDS
        if isinstance(error, Refused):
            return self._put_back(marked, f"{TAKEN}: {error}")
        if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
            return self._put_back(marked, f"{MACHINE}: {error}")
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return self._put_back(marked, f"{DISK}: {error}")
        if isinstance(error, StartInterrupted):
            self._attempts.refresh_tasks([marked])  # which finds a lost attempt
            return f"{RACE}: {error}"
        if not isinstance(error, RoostError | OSError):
            traceback.print_exception(error)
        try:
            why = f"it could not be started: {error}"
            self._store.transition(marked, FAILED, reason=why, ended=time.time())
        except ConcurrentChange:  # as below
            self._attempts.refresh_tasks([marked])
        return ""

    def _put_back(self, marked: Task, why: str) -> str:
        """Returns a task to the pending ones; nothing of it was started, so this was no attempt."""
        try:
            self._store.transition(marked, PENDING, attempt=marked.attempt - 1)
        except ConcurrentChange:  # its end was requested: the refresh finds that it never started
            self._attempts.refresh_tasks([marked])
        return why


def without_leased_processes(card: Card, leases: Sequence[lease_files.CardLease]) -> Card:
    """Returns the card with only the processes whose user holds no lease of it; with trouble, if its leases
    cannot be read."""
    owners = {one.user for one in leases if not one.blocked}
    users = tuple(user for user in card.users if user.name not in owners)
    trouble = card.trouble or next((one.blocked for one in leases if one.blocked), "")
    return replace(card, users=users, trouble=trouble)


def _last_saved(task: Task) -> float | None:
    """Returns the time of the last checkpoint of this attempt: a commit is a rename in its folder. A task
    that only reads its package saves none."""
    if not task.traits.locks_package:
        return None
    try:
        at = (Path(task.package) / "Checkpoints").stat().st_mtime
    except OSError:  # its package was removed
        return None
    return at if task.started is not None and at > task.started else None


def all_without_leased_processes(
    cards: Iterable[Card], leases: Iterable[lease_files.CardLease]
) -> list[Card]:
    """Returns the same for all cards."""
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
