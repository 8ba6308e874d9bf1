"""The decision."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from roost.lab.policy import waiting
from roost.lab.policy.keep import Kept, keep
from roost.lab.policy.queue import Alike, Queue, by_age, by_id, first_of_each_user
from roost.lab.policy.room import Place, Room, Shape
from roost.lab.policy.state import Decision, Expected, Placement, State
from roost.lab.policy.words import IMPOSSIBLE
from roost.lab.task import STOPPING, Task

AHEAD_SECONDS = 3600.0
"""What a live task counts for in the fair share is what it has used, and what it will still use; of that an
hour at most, and where its end is not known an hour."""
GRACE_SECONDS = 60.0
"""A task whose time is over is expected to be gone by then."""
_NOTHING = Expected()
_what_is_asked = attrgetter("need", "priority", "array", "most_parallel")
_NONE: frozenset[int] = frozenset()
_NOWHERE: frozenset[str] = frozenset()


def decide(state: State) -> Decision:
    """What starts now, what is stopped for it, and why each other task waits.

    1. Tasks of the CPU take cores, tasks of cards take cards; neither waits for the other.
    2. Each goes by class, priority, fair share and age (`Queue`).
    3. The first one for which there is no room is the head: cards are kept for it (`keep`), of opportunistic
       tasks too if it is not one itself. Later ones start where they do not delay it.

    The same state gives the same decision.
    """
    return _Pass(state).decide()


def seconds_of(task: Task, state: State) -> float | None:
    """How long a task takes at most, or probably."""
    limit = task.need.time_limit
    return limit if limit is not None else state.expected.get(task.id, _NOTHING).seconds


def end_of(task: Task, state: State) -> float:
    """When a live task ends; infinity where that is not known."""
    if task.state == STOPPING:
        return state.now + GRACE_SECONDS
    seconds = seconds_of(task, state)
    if seconds is None:
        return math.inf
    end = (task.started if task.started is not None else state.now) + seconds
    if end > state.now:
        return end
    return state.now + GRACE_SECONDS if task.need.time_limit is not None else math.inf


class _Pass:
    def __init__(self, state: State) -> None:
        self.state, self.now = state, state.now
        self.room = Room(state)
        self.capacities = [mb for mb, _ in self.room.largest]
        self.cards = [place.card for place in self.room.places]
        self.reasons: dict[str, str] = {}
        self.placements: list[Placement] = []
        self.kept: Kept | None = None
        self.kept_indices = _NONE
        self.head_reason = ""
        self.arrays = Counter(task.array for task in state.live if task.array is not None)
        self.full: dict[Shape, str] = {}
        """Why these fit nowhere, whoever asks: room only shrinks within one pass."""
        self.blocked: dict[tuple[Shape, bool, frozenset[int]], str] = {}
        """Why these do not start: with whether they may outlast the start of the head, and what is barred."""
        self.ends: dict[str, float] = {}
        """Of live tasks, as far as somebody asked."""
        self.causes: dict[str, str] = {}
        """Of tasks that can never start: what the first of those that they wait for, over others, has come
        to. Who is waited for is the older one, and seen before."""
        self.windows = [window for window in state.rules.reserved if window.end > self.now]
        self.running = sum(1 for task in state.live if not task.need.cards)

    def decide(self) -> Decision:
        cards, cpu = (Queue(self.now, self.state.rules, shared=self.state.shared) for _ in range(2))
        groups = self._groups()
        for alike in groups:
            (cards if alike.shape.cards else cpu).add(alike)
        running = Counter(task.user for task in self.state.live if not task.need.cards)
        cpu.walk({user: float(count) for user, count in running.items()}, self._chosen, self._place_on_cpu)
        one_user = all(task.user == self.state.pending[0].user for task in self.state.pending)
        cards.walk({} if one_user else self._charges(), self._chosen, self._place)
        for alike in groups:
            self.reasons.update(dict.fromkeys(map(by_id, alike.tasks), alike.reason))
        for placement in self.placements:
            del self.reasons[placement.task]
        kept = self.kept
        if kept is not None:
            self.reasons[kept.task.id] = self.head_reason
        return Decision(
            placements=tuple(self.placements),
            evictions=kept.evictions if kept is not None else (),
            reasons=self.reasons,
            head=kept.task.id if kept is not None else None,
            head_start=kept.start if kept is not None else None,
        )

    def _groups(self) -> list[Alike]:
        """Those that may start. What a pass over a long queue costs is mostly in the lines that see each
        task: here, and where reasons are given."""
        tasks = [
            task
            for task in by_age(self.state.pending)
            if not (task.held or task.begin or task.after) or not self._waits(task)
        ]
        keys: Iterable[Any] = map(_what_is_asked, tasks)
        if self.windows or self.state.expected or self.state.closed:
            keys = zip(keys, map(self._what_else, tasks), strict=True)
        found: defaultdict[Hashable, list[Task]] = defaultdict(list)
        for key, task in zip(keys, tasks, strict=True):
            found[key].append(task)
        return [self._alike(some) for some in found.values()]

    def _what_else(self, task: Task) -> Hashable:
        """In what tasks may differ that ask for the same."""
        user = task.user if self.windows else None
        return self.state.expected.get(task.id), user, self.state.closed.get(task.id)

    def _alike(self, tasks: Sequence[Task]) -> Alike:
        first = tasks[0]
        known = self.state.expected.get(first.id, _NOTHING)
        return Alike(tasks, Shape.of(first.need, known.memory_mb), seconds_of(first, self.state))

    def _chosen(self, alike: Alike, tasks: Sequence[Task]) -> Sequence[Task]:
        """Those for which there may be room; else whoever may be the head; else one, to be told why."""
        shape = alike.shape
        alike.reason = self.full.get(shape, alike.reason)
        if alike.reason:
            return ()
        outlasts = self.kept is not None and self._outlasts_head(alike)
        if not shape.cards or self.room.has(shape, self._all_barred(outlasts, _NONE)):
            return tasks
        return first_of_each_user(tasks) if self.kept is None else tasks[:1]

    def _waits(self, task: Task) -> bool:
        """Whether it waits for something else than room."""
        reason = self._not_yet(task)
        if reason is not None:
            self.reasons[task.id] = reason
        return reason is not None

    def _not_yet(self, task: Task) -> str | None:
        states = self.state.states
        causes = [self.causes.get(one) or waiting.never(one, states.get(one)) for one in task.after]
        if cause := next(filter(None, causes), None):
            self.causes[task.id] = cause
        if task.held:
            return waiting.held(task)
        if task.begin is not None and task.begin > self.now:
            return waiting.begin(task.begin, self.now)
        reasons = [waiting.dependency(one, states.get(one), self.causes.get(one)) for one in task.after]
        return next((reason for reason in reasons if reason is not None), None)

    def _charges(self) -> dict[str, float]:
        charges = dict(self.state.usage)
        for task in self.state.live:
            if task.cards:
                left = min(self.end(task) - self.now, AHEAD_SECONDS)
                charges[task.user] = charges.get(task.user, 0.0) + left * self._share(task)
        for card, leases in self.state.held.items():
            for lease in leases:
                left = max(0.0, min(lease.end - self.now, AHEAD_SECONDS))
                charges[lease.user] = charges.get(lease.user, 0.0) + left * self._part(card, lease.mb)
        return charges

    def _share(self, task: Task) -> float:
        """Of how many cards, a part of the memory counted as that part."""
        mb, places = task.reserved_mb, self.room.by_id
        if mb is None:
            return float(len(task.cards))
        if len(task.cards) == 1 and task.cards[0] in places:
            return mb / places[task.cards[0]].most
        return sum([mb / places[card].most for card in task.cards if card in places])

    def _part(self, card: str, mb: int | None) -> float:
        """The same of somebody else's lease."""
        if mb is None:
            return 1.0
        return mb / self.room.by_id[card].most if card in self.room.by_id else 0.0

    def end(self, task: Task) -> float:
        """When a live task ends; infinity where that is not known."""
        end = self.ends.get(task.id)
        if end is None:
            end = self.ends[task.id] = end_of(task, self.state)
        return end

    def _cost(self, task: Task) -> float:
        saved = self.state.saved.get(task.id, task.started if task.started is not None else self.now)
        return (self.now - saved) * len(task.cards)

    # --- the CPU ------------------------------------------------------------------------------------------

    def _place_on_cpu(self, task: Task, alike: Alike) -> float | None:
        if self._sweep_is_full(task, alike):
            return None
        most = self.state.rules.cores
        if self.running >= most:
            none = f"{IMPOSSIBLE}: this machine runs no tasks of the CPU"
            alike.reason = waiting.cores(most) if most > 0 else none
            return None
        self.running += 1
        self._started(task, Placement(task.id))
        return 1.0

    # --- cards --------------------------------------------------------------------------------------------

    def _place(self, task: Task, alike: Alike) -> float | None:
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

    def _outlasts_head(self, alike: Alike) -> bool:
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
        never = waiting.too_large(shape, self.capacities, self.cards)
        if never is not None:
            self.full[shape] = f"{IMPOSSIBLE}: {never}"
            return self.full[shape]
        anywhere = self.room.find(shape, _NONE)
        is_head = self.kept is None and self._keep(task, shape, barred)
        if anywhere is None:
            told = functools.partial(waiting.short, shape, self.room, when=self.soonest, now=self.now)
            reason = self.full[shape] = told()
            if is_head:
                self.head_reason = told(kept=self.kept)
            return reason
        if barred and self.room.find(shape, barred) is None:
            reason = self._window(barred, anywhere)
        else:
            assert self.kept is not None
            reason = waiting.behind(self.kept, self.now)
        self.blocked[shape, outlasts, barred] = reason
        if is_head:
            self.head_reason = reason
        return reason

    @functools.cached_property
    def soonest(self) -> float | None:
        """When a card becomes free next; None where that is not known."""
        soonest = min((self.end(task) for task in self.state.live if task.cards), default=math.inf)
        return None if math.isinf(soonest) else soonest

    def _keep(self, task: Task, shape: Shape, barred: frozenset[int]) -> bool:
        self.kept = keep(task, shape, self.room, now=self.now, barred=barred, end=self.end, cost=self._cost)
        if self.kept is not None:
            self.kept_indices = frozenset(place.index for place in self.kept.places)
        return self.kept is not None

    def _take(self, task: Task, alike: Alike, places: list[Place]) -> float:
        shape = alike.shape
        self.room.take(places, shape)
        mb = None if shape.whole else shape.mb
        cards = tuple([place.card.id for place in places])
        started = msgspec.structs.replace(task, cards=cards, reserved_mb=mb, started=self.now)
        for place in places:
            place.live.append(started)
        self._started(task, Placement(task.id, cards, mb))
        end = self.ends[task.id] = math.inf if alike.seconds is None else self.now + alike.seconds
        return min(AHEAD_SECONDS, end - self.now) * self._share(started)

    def _started(self, task: Task, placement: Placement) -> None:
        if task.array is not None:
            self.arrays[task.array] += 1
        self.placements.append(placement)

    def _sweep_is_full(self, task: Task, alike: Alike) -> bool:
        most = task.most_parallel
        if task.array is None or most is None or self.arrays[task.array] < most:
            return False
        alike.reason = waiting.sweep(most)
        return True

    # --- cards that somebody may not have, or that are somebody's for a time --------------------------------

    def _barred(self, task: Task, alike: Alike) -> frozenset[int]:
        """Cards that this task may not have, or that are another user's before it would surely have ended."""
        end = math.inf if alike.seconds is None else self.now + alike.seconds
        cards = [window.card for window in self.windows if window.user != task.user and end > window.begin]
        places = self.room.by_id
        return frozenset(
            places[card].index
            for card in (*cards, *self.state.closed.get(task.id, _NOWHERE))
            if card in places
        )

    def _window(self, barred: frozenset[int], places: list[Place]) -> str:
        place = next(place for place in places if place.index in barred)
        windows = [window for window in self.windows if window.card == place.card.id]
        if not windows:
            return waiting.closed(place.name)
        return waiting.reserved(min(windows, key=lambda window: window.begin), place.name)
