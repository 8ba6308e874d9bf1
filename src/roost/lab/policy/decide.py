"""The decision."""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from roost.lab.policy import waiting
from roost.lab.policy.keep import Kept, keep
from roost.lab.policy.queue import Queue, by_age
from roost.lab.policy.room import Place, Room, Shape
from roost.lab.policy.state import Decision, Expected, Placement, State
from roost.lab.task import STOPPING, Need, Task

AHEAD_SECONDS = 3600.0
"""What a live task counts for in the fair share is what it has used, and what it will still use; of that an
hour at most, and where its end is not known an hour."""
GRACE_SECONDS = 60.0
"""A task whose time is over is expected to be gone by then."""
_NOTHING = Expected()
_NONE: frozenset[int] = frozenset()


def decide(state: State) -> Decision:
    """What starts now, what is stopped for it, and why each other task waits.

    1. Tasks of the CPU take cores, tasks of cards take cards; neither waits for the other.
    2. Each goes by class, priority, fair share and age (`Queue`).
    3. The first one for which there is no room is the head: cards are kept for it (`keep`), of opportunistic
       tasks too if it is not one itself. Later ones start where they do not delay it.

    The same state gives the same decision.
    """
    return _Pass(state).decide()


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
        self.arrays = Counter(task.array for task in state.live if task.array is not None)
        self.shapes: dict[tuple[Need, int | None], Shape] = {}
        self.full: dict[Shape, str] = {}
        """Why these fit nowhere, whoever asks: room only shrinks within one pass."""
        self.full_needs: dict[Need, str] = {}
        """The same by what tasks need that nothing is known of: most of a long queue ends here."""
        self.blocked: dict[tuple[Shape, bool, frozenset[int]], str] = {}
        """Why these do not start: with whether they may outlast the start of the head, and what is barred."""
        self.ends = {task.id: self._end(task) for task in state.live if task.cards}
        """When live tasks end; infinity where that is not known."""
        soonest = min(self.ends.values(), default=math.inf)
        self.soonest = None if math.isinf(soonest) else soonest
        self.windows = [window for window in state.rules.reserved if window.end > self.now]
        self.running = sum(1 for task in state.live if not task.need.cards)

    def decide(self) -> Decision:
        cards, cpu = (Queue(self.now, self.state.rules) for _ in range(2))
        for task in by_age(self.state.pending):
            reason = self._not_yet(task) if task.held or task.begin or task.after else None
            if reason is not None:
                self.reasons[task.id] = reason
            else:
                (cards if task.need.cards else cpu).add(task)
        running = Counter(task.user for task in self.state.live if not task.need.cards)
        cpu.walk({user: float(count) for user, count in running.items()}, self._place_on_cpu)
        cards.walk(self._charges(), self._place)
        mine = self.state.mine
        if mine is not None:
            owners = {task.id: task.user for task in self.state.pending}
            self.placements = [one for one in self.placements if owners[one.task] == mine]
        kept = self.kept
        return Decision(
            placements=tuple(self.placements),
            evictions=kept.evictions if kept is not None else (),
            reasons=self.reasons,
            head=kept.task.id if kept is not None else None,
            head_start=kept.start if kept is not None else None,
        )

    def _not_yet(self, task: Task) -> str | None:
        if task.held:
            return waiting.held(task)
        if task.begin is not None and task.begin > self.now:
            return waiting.begin(task.begin, self.now)
        reasons = [waiting.dependency(one, self.state.states.get(one)) for one in task.after]
        return next((reason for reason in reasons if reason is not None), None)

    def _charges(self) -> dict[str, float]:
        charges = dict(self.state.usage)
        for task in self.state.live:
            if task.cards:
                left = min(self.ends[task.id] - self.now, AHEAD_SECONDS)
                charges[task.user] = charges.get(task.user, 0.0) + left * self._share(task)
        return charges

    def _share(self, task: Task) -> float:
        """Of how many cards, a part of the memory counted as that part."""
        mb, places = task.reserved_mb, self.room.by_id
        if mb is None:
            return float(len(task.cards))
        return sum([mb / places[card].most for card in task.cards if card in places])

    def seconds(self, task: Task) -> float | None:
        """How long it takes at most, or probably."""
        limit = task.need.time_limit
        return limit if limit is not None else self.state.expected.get(task.id, _NOTHING).seconds

    def _end(self, task: Task) -> float:
        if task.state == STOPPING:
            return self.now + GRACE_SECONDS
        seconds = self.seconds(task)
        if seconds is None:
            return math.inf
        end = (task.started if task.started is not None else self.now) + seconds
        if end > self.now:
            return end
        return self.now + GRACE_SECONDS if task.need.time_limit is not None else math.inf

    def _cost(self, task: Task) -> float:
        saved = self.state.saved.get(task.id, task.started if task.started is not None else self.now)
        return (self.now - saved) * len(task.cards)

    # --- the CPU ------------------------------------------------------------------------------------------

    def _place_on_cpu(self, task: Task) -> float | None:
        if self._sweep_is_full(task):
            return None
        most = self.state.rules.cores
        if self.running >= most:
            none = "impossible: this machine runs no tasks of the CPU"
            self.reasons[task.id] = waiting.cores(most) if most > 0 else none
            return None
        self.running += 1
        self._started(task, Placement(task.id))
        return 1.0

    # --- cards --------------------------------------------------------------------------------------------

    def _shape(self, task: Task) -> Shape:
        known = self.state.expected.get(task.id)
        key = (task.need, None if known is None else known.memory_mb)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape.of(*key)
        return shape

    def _place(self, task: Task) -> float | None:
        """One task of cards; what it adds to its user's share, or None."""
        if task.array is not None and self._sweep_is_full(task):
            return None
        reason = self.full_needs.get(task.need)
        if reason is not None and task.id not in self.state.expected:
            self.reasons[task.id] = reason
            return None
        shape = self._shape(task)
        reason = self.full.get(shape)
        if reason is not None:
            if task.id not in self.state.expected:
                self.full_needs[task.need] = reason
        else:
            barred = self._barred_by_windows(task) if self.windows else _NONE
            outlasts = self.kept is not None and self._outlasts_head(task)
            key = (shape, outlasts, barred)
            reason = self.blocked.get(key)
            if reason is None:
                found = self.room.find(shape, self._all_barred(outlasts, barred))
                if found is not None:
                    return self._take(task, shape, found)
                reason = self._why(task, shape, outlasts, barred)
        self.reasons[task.id] = reason
        return None

    def _outlasts_head(self, task: Task) -> bool:
        """Whether it might still run when the head starts. Where that is not known, whatever ends at all may
        start: the head then waits for its limit at most."""
        assert self.kept is not None
        seconds = self.seconds(task)
        if seconds is None:
            return True
        return self.kept.start is not None and self.now + seconds > self.kept.start

    def _all_barred(self, outlasts: bool, barred: frozenset[int]) -> frozenset[int]:
        return barred | self.kept_indices if outlasts else barred

    def _why(self, task: Task, shape: Shape, outlasts: bool, barred: frozenset[int]) -> str:
        """Why there is no room, for all that take the same; keeps cards if this is the first of all."""
        never = waiting.too_large(shape, self.capacities, self.cards)
        if never is not None:
            self.full[shape] = f"impossible: {never}"
            return self.full[shape]
        anywhere = self.room.find(shape, _NONE)
        is_head = self.kept is None
        if is_head:
            self._keep(task, shape, barred)
        if anywhere is None:
            kept = self.kept if is_head else None
            reason = waiting.short(shape, self.room, when=self.soonest, now=self.now, kept=kept)
            later = waiting.short(shape, self.room, when=self.soonest, now=self.now) if kept else reason
            self.full[shape] = later  # the next one of this shape is not the head
            return reason
        if barred and self.room.find(shape, barred) is None:
            reason = self._window(barred, anywhere)
        else:
            assert self.kept is not None
            reason = waiting.behind(self.kept, self.now)
        if not is_head or self.kept is None:
            self.blocked[shape, outlasts, barred] = reason
        return reason

    def _keep(self, task: Task, shape: Shape, barred: frozenset[int]) -> None:
        self.kept = keep(task, shape, self.room, now=self.now, barred=barred, ends=self.ends, cost=self._cost)
        if self.kept is not None:
            self.kept_indices = frozenset(place.index for place in self.kept.places)

    def _take(self, task: Task, shape: Shape, places: list[Place]) -> float:
        self.room.take(places, shape)
        mb = None if shape.whole else shape.mb
        cards = tuple(place.card.id for place in places)
        started = msgspec.structs.replace(task, cards=cards, reserved_mb=mb, started=self.now)
        for place in places:
            place.live.append(started)
        self._started(task, Placement(task.id, cards, mb))
        seconds = self.seconds(task)
        self.ends[task.id] = math.inf if seconds is None else self.now + seconds
        return min(AHEAD_SECONDS, self.ends[task.id] - self.now) * self._share(started)

    def _started(self, task: Task, placement: Placement) -> None:
        if task.array is not None:
            self.arrays[task.array] += 1
        self.placements.append(placement)

    def _sweep_is_full(self, task: Task) -> bool:
        most = task.most_parallel
        if task.array is None or most is None or self.arrays[task.array] < most:
            return False
        self.reasons[task.id] = waiting.sweep(most)
        return True

    # --- cards that are somebody's for a time ---------------------------------------------------------------

    def _barred_by_windows(self, task: Task) -> frozenset[int]:
        """Cards that are another user's before this task would surely have ended."""
        seconds = self.seconds(task)
        end = math.inf if seconds is None else self.now + seconds
        places = self.room.by_id
        return frozenset(
            places[window.card].index
            for window in self.windows
            if window.user != task.user and end > window.begin and window.card in places
        )

    def _window(self, barred: frozenset[int], places: list[Place]) -> str:
        place = next(place for place in places if place.index in barred)
        windows = [window for window in self.windows if window.card == place.card.id]
        return waiting.reserved(min(windows, key=lambda window: window.begin), place.name)
