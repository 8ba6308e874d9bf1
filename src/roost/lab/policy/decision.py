"""The scheduling decision: placements, preemptions, and a reason for each task that waits.

The scheduler and the simulation use `Policy`, which keeps caches from pass to pass; `decide` does one pass
without.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from roost.devices.resource_request import CardRequirement
from roost.lab.policy import wait_reasons
from roost.lab.policy.card_capacity import CardOccupancy, Shape
from roost.lab.policy.host_capacity import HostCapacity
from roost.lab.policy.host_share import NO_SHARE, HostShare
from roost.lab.policy.pass_cache import CardCache
from roost.lab.policy.policy_state import Decision, Placement, PolicyState
from roost.lab.policy.queue_order import (
    Candidates,
    QueueOrder,
    TaskGroup,
    UserCharges,
    first_in_line,
    first_of_each_user,
)
from roost.lab.policy.reason_codes import IMPOSSIBLE
from roost.lab.policy.reservation import Reservation, reserve_cards
from roost.lab.policy.running_tasks import MAX_CHARGED_SECONDS, expected_end
from roost.lab.policy.task_groups import TaskGroups
from roost.lab.queue.task import Task

_NO_INDICES: frozenset[int] = frozenset()
_NO_CARD_IDS: frozenset[str] = frozenset()


def decide(state: PolicyState) -> Decision:
    """Returns which tasks start now, which are preempted for them, and why each other task waits.

    1. Tasks without a card take a share of the host (`HostCapacity`), the others take cards, and a share of
       the host if they request one. Only tasks that take a share of the same thing wait for each other.
    2. Both kinds are ordered by class, priority, fair share and age (`QueueOrder`). Of each level the kind
       with the oldest task that takes a share of the host comes first.
    3. For the first blocked task cards are reserved (`reserve_cards`), and its share of the host. If it is
       not opportunistic, those of opportunistic tasks are included, and these tasks are preempted. Later
       tasks start where they do not delay it (EASY backfill).

    The decision depends only on the state.
    """
    return Policy().decide(state)


class Policy:
    """`decide` for repeated calls. The decisions are the same; they take less time if the lists of a state
    hold the same objects as those of the last one, except for a few removed and some appended ones."""

    def __init__(self) -> None:
        self._card_cache: CardCache | None = None
        self._groups: TaskGroups | None = None

    def decide(self, state: PolicyState) -> Decision:
        card_cache, groups = self._card_cache, self._groups
        self._card_cache = self._groups = None  # an error below leaves them unusable
        if card_cache is None or not card_cache.update(state):
            card_cache = CardCache(state)
        if groups is None or not groups.update(state):
            groups = TaskGroups(state)
        decision = _Pass(state, card_cache).decide(groups)
        self._card_cache, self._groups = card_cache, groups
        return decision


class _Pass:
    def __init__(self, state: PolicyState, card_cache: CardCache) -> None:
        self.state, self.now, self.card_cache = state, state.now, card_cache
        self.free_capacity, self.running_tasks = card_cache.free_capacity, card_cache.running_tasks
        self.placements: list[Placement] = []
        self.reservation: Reservation | None = None
        self.reserved_indices = _NO_INDICES
        self.first_blocked_reason = ""
        self.placed_of: Counter[str] = Counter()
        """The number of tasks placed in this pass, by sweep."""
        self.full_reasons: dict[Shape, str] = {}
        """Why tasks of these shapes fit nowhere. Capacity only shrinks within one pass, so it stays true."""
        self.blocked_reasons: dict[tuple[Shape, bool, frozenset[int]], str] = {}
        """Why tasks do not start: by shape, whether they may outlast the start of the first blocked task, and
        the barred cards."""
        self.may_fit: dict[tuple[Shape, bool], bool] = {}
        """Whether a shape may fit, by whether its tasks may outlast the start of the first blocked task;
        valid until a task is placed."""
        self.other_cards: dict[CardRequirement, frozenset[int]] = {}
        """The cards that are not what tasks require, by the requirement."""
        self.windows = [window for window in state.rules.reserved if window.end > self.now]
        self.host = HostCapacity(
            state.rules,
            self.running_tasks.on_host.values(),
            end=lambda task: expected_end(task, state),
            cost=self._preemption_cost,
            now=self.now,
        )
        self.only_cores_of_cpu_tasks = True
        """Whether the pending tasks take nothing of the host but the cores of tasks without a card."""

    def decide(self, groups: TaskGroups) -> Decision:
        """Decides about all pending tasks."""
        cards, cpu = (
            QueueOrder(self.now, self.state.rules, shared=self.state.has_other_queues) for _ in range(2)
        )
        cards.add_groups([group for group in groups.groups.values() if group.shape.cards])
        cpu.add_groups([group for group in groups.groups.values() if not group.shape.cards])
        offers = [
            functools.partial(
                cpu.offer_tasks, UserCharges(self._cores_held), self._select_for_cpu, self._place_on_cpu
            ),
            functools.partial(
                cards.offer_tasks, UserCharges(self.running_tasks.charges), self._select, self._place
            ),
        ]
        if self._find_shared_requests(groups):
            for level in sorted({*cpu.levels, *cards.levels}):
                are_cards_first = cards.oldest_on_host(level) < cpu.oldest_on_host(level)
                for offer in reversed(offers) if are_cards_first else offers:
                    offer(levels=[level])
        else:
            for offer in offers:
                offer()
        reasons = groups.reasons()
        for placement in self.placements:
            del reasons[placement.task]
        reservation = self.reservation
        if reservation is not None:
            reasons[reservation.task.id] = self.first_blocked_reason
        return Decision(
            placements=tuple(self.placements),
            preemptions=self._preemptions(),
            reasons=reasons,
            first_blocked=reservation.task.id if reservation is not None else None,
            first_blocked_start=reservation.start if reservation is not None else None,
        )

    def _find_shared_requests(self, groups: TaskGroups) -> bool:
        """Returns whether a pending task takes more of the host than the cores of a task without a card, and
        sets the wait reasons of those for which the host is too small."""
        found = False
        for group in groups.groups.values():
            share = group.host_share
            if share is not NO_SHARE and (share.mb or group.shape.cards):
                found = True
                if never := wait_reasons.host_too_small(share, self.state.rules):
                    group.reason = f"{IMPOSSIBLE}: {never}"
        self.only_cores_of_cpu_tasks = not found
        return found

    def _preemptions(self) -> tuple[str, ...]:
        for_cards = () if self.reservation is None else self.reservation.preemptions
        return tuple(dict.fromkeys([*for_cards, *self.host.preemptions]))

    def _select(self, candidates: Candidates, charges: UserCharges | None) -> Candidates:
        """Returns the tasks worth trying in this pass: those that may fit; of groups that fit nowhere the
        first task of each user, or one task, so that a first blocked task is found and a reason for the
        group."""
        hopeful: Candidates = []
        hopeless: Candidates = []
        may_start = has_requirement = False
        full_reasons = self.full_reasons
        for one in candidates:
            group, tasks = one
            group.reason = full_reasons.get(group.shape, group.reason)
            if not group.reason:
                is_refused = group.is_limited and self._refuse_if_sweep_is_full(tasks[0], group)
                fits = self._fits(group)
                may_start = may_start or (fits and not is_refused)
                has_requirement = has_requirement or tasks[0].need.card is not None
                (hopeful if fits else hopeless).append(one)
        is_plain = not (may_start or has_requirement or self.windows or self.state.closed_cards)
        if self.reservation is None and not (is_plain and self._try_first_for_reservation(hopeless, charges)):
            return hopeful + [(group, first_of_each_user(tasks)) for group, tasks in hopeless]
        if not is_plain or any(map(self._is_stale, hopeless)):
            return hopeful + [(group, tasks[:1]) for group, tasks in hopeless]
        # No task starts, so their order does not matter, and one task is tried for all of a shape.
        reasons: dict[tuple[Shape, bool], str] = {}
        for group, tasks in hopeless:
            if not group.reason:
                key = group.shape, self._outlasts_reservation(group)
                if key not in reasons:
                    self._place(tasks[0], group)
                    reasons[key] = group.reason
                group.reason = reasons[key]
        return []

    def _try_first_for_reservation(self, candidates: Candidates, charges: UserCharges | None) -> bool:
        """Tries the first of these tasks, none of which can start; returns whether cards are reserved
        afterwards."""
        first = None if self.state.has_other_queues else first_in_line(candidates, charges)
        if first is not None:
            self._place(*first)
        return self.reservation is not None

    def _is_stale(self, one: tuple[TaskGroup, Sequence[Task]]) -> bool:
        """Whether capacity has shrunk since tasks like these were found to wait behind the reservation."""
        group, _ = one
        is_behind = (group.shape, self._outlasts_reservation(group), _NO_INDICES) in self.blocked_reasons
        return is_behind and not self.free_capacity.has_fit(group.shape, _NO_INDICES)

    def _fits(self, group: TaskGroup) -> bool:
        shape, outlasts = group.shape, self.reservation is not None and self._outlasts_reservation(group)
        fits = self.may_fit.get((shape, outlasts))
        if fits is None:
            fits = self.may_fit[shape, outlasts] = self.free_capacity.has_fit(
                shape, self._all_barred(outlasts, _NO_INDICES)
            )
        return fits

    def _preemption_cost(self, task: Task) -> float:
        saved = self.state.last_saved.get(task.id, task.started if task.started is not None else self.now)
        return (self.now - saved) * len(task.cards)

    # --- the CPU ------------------------------------------------------------------------------------------

    def _select_for_cpu(self, candidates: Candidates, _: UserCharges | None) -> Candidates:
        """Returns the tasks that count as no core if no core is left; of the others one of each number of
        cores is tried then, for the reason of all of them."""
        if not (self.host.has_no_core and self.only_cores_of_cpu_tasks):
            return [one for one in candidates if not one[0].reason]
        reasons: dict[int | None, str] = {}
        coreless: Candidates = []
        for group, tasks in candidates:
            cores = tasks[0].need.cores
            if not group.host_share.cores:
                coreless += [] if group.reason else [(group, tasks)]
            elif not group.reason and not self._refuse_if_sweep_is_full(tasks[0], group):
                if cores not in reasons:
                    self._place_on_cpu(tasks[0], group)
                    reasons[cores] = group.reason
                group.reason = reasons[cores]
        return coreless

    def _place_on_cpu(self, task: Task, group: TaskGroup) -> float | None:
        if self._refuse_if_sweep_is_full(task, group):
            return None
        if never := wait_reasons.impossible(task.need, (), self.state.rules):
            group.reason = f"{IMPOSSIBLE}: {never}"
        elif why := self.host.refusal_reason(task, group.host_share, group.seconds):
            group.reason = why
        else:
            self.host.allocate(task, group.host_share, group.seconds)
            self._add_placement(task, Placement(task.id))
            return float(group.host_share.cores)
        return None

    def _cores_held(self) -> dict[str, float]:
        """The number of cores that tasks without a card use, by user."""
        held: Counter[str] = Counter()
        for task in self.running_tasks.on_host.values():
            if not task.need.cards:
                held[task.user] += HostShare.from_need(task.need).cores
        return {user: float(count) for user, count in held.items()}

    # --- cards --------------------------------------------------------------------------------------------

    def _place(self, task: Task, group: TaskGroup) -> float | None:
        """Places a task on cards, if it fits. Returns what that adds to its user's charge, else None."""
        if self._refuse_if_sweep_is_full(task, group):
            return None
        shape = group.shape
        reason = self.full_reasons.get(shape)
        if reason is None:
            may_be_barred = self.windows or self.state.closed_cards or task.need.card is not None
            barred = self._barred(task, group) if may_be_barred else _NO_INDICES
            outlasts = self.reservation is not None and self._outlasts_reservation(group)
            reason = self.blocked_reasons.get((shape, outlasts, barred))
            if reason is None:
                found = self.free_capacity.find(shape, self._all_barred(outlasts, barred))
                if found is not None:
                    if group.host_share is NO_SHARE or self._may_have_share(task, group, found):
                        return self._allocate(task, group, found)
                    return None
                reason = self._blocking_reason(task, group, outlasts, barred)
        group.reason = reason
        return None

    def _may_have_share(self, task: Task, group: TaskGroup, found: list[CardOccupancy]) -> bool:
        """Whether a task that fits on cards gets its share of the host, too; else sets why it waits, and
        reserves the cards if it is the first blocked task."""
        reason = self.host.refusal_reason(task, group.host_share, group.seconds)
        if reason is None:
            return True
        group.reason = reason
        if self.reservation is None:
            start = self.host.start_of(group.host_share)
            self._set_reservation(Reservation(task, tuple(found), None if math.isinf(start) else start))
            self.first_blocked_reason = reason
        return False

    def _outlasts_reservation(self, group: TaskGroup) -> bool:
        """Whether a task might still run when the first blocked task starts. If that time is not known, each
        task with an end may start: the first blocked task then waits at most for its time limit."""
        assert self.reservation is not None
        if group.seconds is None:
            return True
        return self.reservation.start is not None and self.now + group.seconds > self.reservation.start

    def _all_barred(self, outlasts: bool, barred: frozenset[int]) -> frozenset[int]:
        return barred | self.reserved_indices if outlasts else barred

    def _blocking_reason(self, task: Task, group: TaskGroup, outlasts: bool, barred: frozenset[int]) -> str:
        """Returns why no task of this shape starts; reserves cards if this is the first blocked task."""
        shape = group.shape
        never = wait_reasons.too_large(shape, self.card_cache.capacities, self.card_cache.cards)
        if never is not None:
            self.full_reasons[shape] = f"{IMPOSSIBLE}: {never}"
            return self.full_reasons[shape]
        anywhere = self.free_capacity.find(shape, _NO_INDICES)
        is_first_blocked = self.reservation is None and self._reserve(task, group, barred)
        if anywhere is None:
            describe = functools.partial(
                wait_reasons.too_little_capacity,
                shape,
                self.free_capacity,
                when=self.running_tasks.next_end,
                now=self.now,
            )
            reason = self.full_reasons[shape] = describe()
            if is_first_blocked:
                self.first_blocked_reason = describe(reservation=self.reservation)
            return reason
        if barred and self.free_capacity.find(shape, barred) is None:
            reason = self._barring_reason(task, barred, anywhere)
        else:
            assert self.reservation is not None
            reason = wait_reasons.behind_reservation(self.reservation, self.now)
        self.blocked_reasons[shape, outlasts, barred] = reason
        if is_first_blocked:
            self.first_blocked_reason = reason
        return reason

    def _reserve(self, task: Task, group: TaskGroup, barred: frozenset[int]) -> bool:
        release_times, ends_are_fixed = self.card_cache.release_times, self.running_tasks.ends_are_fixed
        found = reserve_cards(
            task,
            group.shape,
            release_times,
            ends_are_fixed=ends_are_fixed,
            now=self.now,
            barred=barred,
            cost=self._preemption_cost,
        )
        if found is None:
            return False
        if group.host_share is not NO_SHARE:
            free_at = math.inf if found.start is None else found.start
            start = self.host.reserve(task, group.host_share, not_before=free_at)
            if not found.preemptions:
                found = replace(found, start=None if math.isinf(start) else start)
        self._set_reservation(found)
        return True

    def _set_reservation(self, reservation: Reservation) -> None:
        self.reservation = reservation
        self.reserved_indices = frozenset(occupancy.index for occupancy in reservation.occupancies)

    def _allocate(self, task: Task, group: TaskGroup, occupancies: list[CardOccupancy]) -> float:
        shape = group.shape
        mb = None if shape.whole else shape.mb
        cards = tuple([occupancy.card.id for occupancy in occupancies])
        started = msgspec.structs.replace(task, cards=cards, reserved_mb=mb, started=self.now)
        self.free_capacity.allocate(occupancies, shape, started)
        if group.host_share is not NO_SHARE:
            self.host.allocate(task, group.host_share, group.seconds)
        self.may_fit.clear()
        self._add_placement(task, Placement(task.id, cards, mb))
        end = math.inf if group.seconds is None else self.now + group.seconds
        self.running_tasks.add_placed(task, end)
        return min(MAX_CHARGED_SECONDS, end - self.now) * self.running_tasks.card_share(started)

    def _add_placement(self, task: Task, placement: Placement) -> None:
        if task.sweep is not None:
            self.placed_of[task.sweep] += 1
        self.placements.append(placement)

    def _refuse_if_sweep_is_full(self, task: Task, group: TaskGroup) -> bool:
        """Returns whether a sweep runs as many tasks as it may; sets the wait reason of the group if so."""
        most = task.most_parallel
        if most is None or task.sweep is None:
            return False
        if self.running_tasks.sweeps[task.sweep] + self.placed_of[task.sweep] < most:
            return False
        group.reason = wait_reasons.sweep(most)
        return True

    # --- closed cards and reserved windows ------------------------------------------------------------------

    def _barred(self, task: Task, group: TaskGroup) -> frozenset[int]:
        """Returns the cards that are closed to a task, are not what it requires, or are reserved for
        another user before its latest end."""
        end = math.inf if group.seconds is None else self.now + group.seconds
        cards = [window.card for window in self.windows if window.user != task.user and end > window.begin]
        occupancies = self.free_capacity.by_id
        closed = [
            occupancies[card].index
            for card in (*cards, *self.state.closed_cards.get(task.id, _NO_CARD_IDS))
            if card in occupancies
        ]
        return frozenset(closed) | self._other_cards(task.need.card)

    def _other_cards(self, required: CardRequirement | None) -> frozenset[int]:
        """Returns the cards that are not what a task requires."""
        if required is None:
            return _NO_INDICES
        if required not in self.other_cards:
            cards = self.free_capacity.occupancies
            self.other_cards[required] = frozenset(one.index for one in cards if not required.fits(one.card))
        return self.other_cards[required]

    def _barring_reason(self, task: Task, barred: frozenset[int], occupancies: list[CardOccupancy]) -> str:
        occupancy = next(occupancy for occupancy in occupancies if occupancy.index in barred)
        if occupancy.index in self._other_cards(task.need.card):
            return wait_reasons.other_card(task.need, occupancy.name)
        windows = [window for window in self.windows if window.card == occupancy.card.id]
        if not windows:
            return wait_reasons.closed(occupancy.name)
        return wait_reasons.reserved(min(windows, key=lambda window: window.begin), occupancy.name)
