"""The decision."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from roost.lab.policy import wait_reasons
from roost.lab.policy.card_capacity import CardOccupancy, Shape
from roost.lab.policy.core_capacity import CoreCapacity, num_cores
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

_NONE: frozenset[int] = frozenset()
_NOWHERE: frozenset[str] = frozenset()


def decide(state: PolicyState) -> Decision:
    """What starts now, what is stopped for it, and why each other task waits.

    1. Tasks of the CPU take cores, tasks of cards take cards; neither waits for the other.
    2. Each goes by class, priority, fair share and age (`QueueOrder`).
    3. The first one for which there is no room is the head: cards are kept for it (`reserve_cards`), of opportunistic
       tasks too if it is not one itself. Later ones start where they do not delay it.

    The same state gives the same decision.
    """
    return Policy().decide(state)


class Policy:
    """`decide` for who asks again and again. It gives the same decisions, sooner where the lists of a state
    hold the same objects as those of the last one, but for a few that have gone and some that have come."""

    def __init__(self) -> None:
        self._ground: CardCache | None = None
        self._kinds: TaskGroups | None = None

    def decide(self, state: PolicyState) -> Decision:
        ground, kinds = self._ground, self._kinds
        self._ground = self._kinds = None  # what an error leaves half done is of no use
        if ground is None or not ground.follow(state):
            ground = CardCache(state)
        if kinds is None or not kinds.follow(state):
            kinds = TaskGroups(state)
        decision = _Pass(state, ground).decide(kinds)
        self._ground, self._kinds = ground, kinds
        return decision


class _Pass:
    def __init__(self, state: PolicyState, ground: CardCache) -> None:
        self.state, self.now, self.ground = state, state.now, ground
        self.room, self.living = ground.room, ground.living
        self.placements: list[Placement] = []
        self.kept: Reservation | None = None
        self.kept_indices = _NONE
        self.head_reason = ""
        self.placed_of: Counter[str] = Counter()
        """By sweep."""
        self.full: dict[Shape, str] = {}
        """Why these fit nowhere, whoever asks: room only shrinks within one pass."""
        self.blocked: dict[tuple[Shape, bool, frozenset[int]], str] = {}
        """Why these do not start: with whether they may outlast the start of the head, and what is barred."""
        self.fits: dict[tuple[Shape, bool], bool] = {}
        """Whether there may be room for these, with whether they may outlast the start of the head; until
        something is placed."""
        self.windows = [window for window in state.rules.reserved if window.end > self.now]
        on_cpu = self.living.on_cpu.values()
        self.cores = CoreCapacity(
            state.rules.cores, on_cpu, end=lambda task: expected_end(task, state), now=self.now
        )

    def decide(self, kinds: TaskGroups) -> Decision:
        """What starts of these, what makes room, and why the rest waits.

        Args:
            kinds: All that waits.
        """
        cards, cpu = (QueueOrder(self.now, self.state.rules, shared=self.state.shared) for _ in range(2))
        cards.fill([alike for alike in kinds.alike.values() if alike.shape.cards])
        cpu.fill([alike for alike in kinds.alike.values() if not alike.shape.cards])
        cpu.walk(UserCharges(self._cores_held), self._chosen_for_cpu, self._place_on_cpu)
        cards.walk(UserCharges(self.living.charges), self._chosen, self._place)
        reasons = kinds.tell()
        for placement in self.placements:
            del reasons[placement.task]
        kept = self.kept
        if kept is not None:
            reasons[kept.task.id] = self.head_reason
        return Decision(
            placements=tuple(self.placements),
            evictions=kept.evictions if kept is not None else (),
            reasons=reasons,
            head=kept.task.id if kept is not None else None,
            head_start=kept.start if kept is not None else None,
        )

    def _chosen(self, some: Candidates, charges: UserCharges | None) -> Candidates:
        """Those for which there may be room; else whoever may be the head; else one, to be told why."""
        hopeful: Candidates = []
        hopeless: Candidates = []
        may_start = False
        full = self.full
        for one in some:
            alike, tasks = one
            alike.reason = full.get(alike.shape, alike.reason)
            if not alike.reason:
                is_refused = alike.is_limited and self._sweep_is_full(tasks[0], alike)
                fits = self._fits(alike)
                may_start = may_start or (fits and not is_refused)
                (hopeful if fits else hopeless).append(one)
        is_plain = not (may_start or self.windows or self.state.closed)
        if self.kept is None and not (is_plain and self._has_head(hopeless, charges)):
            return hopeful + [(alike, first_of_each_user(tasks)) for alike, tasks in hopeless]
        if not is_plain or any(map(self._is_stale, hopeless)):
            return hopeful + [(alike, tasks[:1]) for alike, tasks in hopeless]
        # Nobody starts, so it does not matter in which order they ask, and one asks for all of a shape.
        told: dict[tuple[Shape, bool], str] = {}
        for alike, tasks in hopeless:
            if not alike.reason:
                asked = alike.shape, self._outlasts_head(alike)
                if asked not in told:
                    self._place(tasks[0], alike)
                    told[asked] = alike.reason
                alike.reason = told[asked]
        return []

    def _has_head(self, some: Candidates, charges: UserCharges | None) -> bool:
        """Whether cards are kept now for the first of these, none of whom starts."""
        first = None if self.state.shared else first_in_line(some, charges)
        if first is not None:
            self._place(*first)
        return self.kept is not None

    def _is_stale(self, one: tuple[TaskGroup, Sequence[Task]]) -> bool:
        """Whether there is less room than when it was told that somebody like it is behind the head."""
        alike, _ = one
        is_behind = (alike.shape, self._outlasts_head(alike), _NONE) in self.blocked
        return is_behind and not self.room.has(alike.shape, _NONE)

    def _fits(self, alike: TaskGroup) -> bool:
        shape, outlasts = alike.shape, self.kept is not None and self._outlasts_head(alike)
        fits = self.fits.get((shape, outlasts))
        if fits is None:
            fits = self.fits[shape, outlasts] = self.room.has(shape, self._all_barred(outlasts, _NONE))
        return fits

    def _cost(self, task: Task) -> float:
        saved = self.state.saved.get(task.id, task.started if task.started is not None else self.now)
        return (self.now - saved) * len(task.cards)

    # --- the CPU ------------------------------------------------------------------------------------------

    def _chosen_for_cpu(self, some: Candidates, _: UserCharges | None) -> Candidates:
        """Nobody where nothing is left, but for one who is told why for all that need as much."""
        if not self.cores.are_taken:
            return [one for one in some if not one[0].reason]
        told: dict[int | None, str] = {}
        for alike, tasks in some:
            cores = tasks[0].need.cores
            if not alike.reason and not self._sweep_is_full(tasks[0], alike):
                if cores not in told:
                    self._place_on_cpu(tasks[0], alike)
                    told[cores] = alike.reason
                alike.reason = told[cores]
        return []

    def _place_on_cpu(self, task: Task, alike: TaskGroup) -> float | None:
        if self._sweep_is_full(task, alike):
            return None
        if never := wait_reasons.impossible(task.need, (), self.state.rules):
            alike.reason = f"{IMPOSSIBLE}: {never}"
        elif why := self.cores.take(task, alike.seconds):
            alike.reason = why
        else:
            self._started(task, Placement(task.id))
            return float(num_cores(task.need))
        return None

    def _cores_held(self) -> dict[str, float]:
        """By user."""
        held: Counter[str] = Counter()
        for task in self.living.on_cpu.values():
            held[task.user] += num_cores(task.need)
        return {user: float(count) for user, count in held.items()}

    # --- cards --------------------------------------------------------------------------------------------

    def _place(self, task: Task, alike: TaskGroup) -> float | None:
        """One task of cards; what it adds to its user's share, or None."""
        if self._sweep_is_full(task, alike):
            return None
        shape = alike.shape
        reason = self.full.get(shape)
        if reason is None:
            barred = self._barred(task, alike) if self.windows or self.state.closed else _NONE
            outlasts = self.kept is not None and self._outlasts_head(alike)
            reason = self.blocked.get((shape, outlasts, barred))
            if reason is None:
                found = self.room.find(shape, self._all_barred(outlasts, barred))
                if found is not None:
                    return self._take(task, alike, found)
                reason = self._why(task, shape, outlasts, barred)
        alike.reason = reason
        return None

    def _outlasts_head(self, alike: TaskGroup) -> bool:
        """Whether it might still run when the head starts. Where that is not known, whatever ends at all may
        start: the head then waits for its limit at most."""
        assert self.kept is not None
        if alike.seconds is None:
            return True
        return self.kept.start is not None and self.now + alike.seconds > self.kept.start

    def _all_barred(self, outlasts: bool, barred: frozenset[int]) -> frozenset[int]:
        return barred | self.kept_indices if outlasts else barred

    def _why(self, task: Task, shape: Shape, outlasts: bool, barred: frozenset[int]) -> str:
        """Why there is no room, for all that take the same; keeps cards if this is the first of all."""
        never = wait_reasons.too_large(shape, self.ground.capacities, self.ground.cards)
        if never is not None:
            self.full[shape] = f"{IMPOSSIBLE}: {never}"
            return self.full[shape]
        anywhere = self.room.find(shape, _NONE)
        is_head = self.kept is None and self._keep(task, shape, barred)
        if anywhere is None:
            told = functools.partial(
                wait_reasons.too_little_capacity, shape, self.room, when=self.living.soonest, now=self.now
            )
            reason = self.full[shape] = told()
            if is_head:
                self.head_reason = told(kept=self.kept)
            return reason
        if barred and self.room.find(shape, barred) is None:
            reason = self._window(barred, anywhere)
        else:
            assert self.kept is not None
            reason = wait_reasons.behind_reservation(self.kept, self.now)
        self.blocked[shape, outlasts, barred] = reason
        if is_head:
            self.head_reason = reason
        return reason

    def _keep(self, task: Task, shape: Shape, barred: frozenset[int]) -> bool:
        leaving, is_steady = self.ground.leaving, self.living.is_steady
        self.kept = reserve_cards(
            task, shape, leaving, is_steady=is_steady, now=self.now, barred=barred, cost=self._cost
        )
        if self.kept is not None:
            self.kept_indices = frozenset(place.index for place in self.kept.places)
        return self.kept is not None

    def _take(self, task: Task, alike: TaskGroup, places: list[CardOccupancy]) -> float:
        shape = alike.shape
        mb = None if shape.whole else shape.mb
        cards = tuple([place.card.id for place in places])
        started = msgspec.structs.replace(task, cards=cards, reserved_mb=mb, started=self.now)
        self.room.take(places, shape, started)
        self.fits.clear()
        self._started(task, Placement(task.id, cards, mb))
        end = math.inf if alike.seconds is None else self.now + alike.seconds
        self.living.starts(task, end)
        return min(MAX_CHARGED_SECONDS, end - self.now) * self.living.share(started)

    def _started(self, task: Task, placement: Placement) -> None:
        if task.sweep is not None:
            self.placed_of[task.sweep] += 1
        self.placements.append(placement)

    def _sweep_is_full(self, task: Task, alike: TaskGroup) -> bool:
        most = task.most_parallel
        if most is None or task.sweep is None:
            return False
        if self.living.sweeps[task.sweep] + self.placed_of[task.sweep] < most:
            return False
        alike.reason = wait_reasons.sweep(most)
        return True

    # --- cards that somebody may not have, or that are somebody's for a time --------------------------------

    def _barred(self, task: Task, alike: TaskGroup) -> frozenset[int]:
        """Cards that this task may not have, or that are another user's before it would surely have ended."""
        end = math.inf if alike.seconds is None else self.now + alike.seconds
        cards = [window.card for window in self.windows if window.user != task.user and end > window.begin]
        places = self.room.by_id
        return frozenset(
            places[card].index
            for card in (*cards, *self.state.closed.get(task.id, _NOWHERE))
            if card in places
        )

    def _window(self, barred: frozenset[int], places: list[CardOccupancy]) -> str:
        place = next(place for place in places if place.index in barred)
        windows = [window for window in self.windows if window.card == place.card.id]
        if not windows:
            return wait_reasons.closed(place.name)
        return wait_reasons.reserved(min(windows, key=lambda window: window.begin), place.name)
