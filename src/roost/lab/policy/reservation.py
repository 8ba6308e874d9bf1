"""The one reservation: cards that are kept for the task at the head of the queue (EASY backfill).

Lifka, The ANL/IBM SP Scheduling System, 1995: whoever comes later may start if it ends before the head would
start, or uses cards that the head does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import itemgetter

from roost.lab.policy.card_capacity import CardOccupancy, FreeCapacity, Shape
from roost.lab.queue.task import STOPPING, Task

_NOW = -math.inf
_MAX_SHAPES, _MAX_CHANGES = 64, 10_000


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept, for whom."""

    task: Task
    places: tuple[CardOccupancy, ...]
    start: float | None
    """None: something that it waits for has no known end."""
    evictions: tuple[str, ...] = ()
    making_room: tuple[str, ...] = ()
    """The names of the opportunistic tasks that do for it: now, or at its start if that is later."""


class ReleaseTimes:
    """When cards become free, as those who are there leave one after the other. What was found for a shape is
    remembered until somebody comes or goes.

    Args:
        room: What is left; changes.
        end: When a live task ends; infinity where that is not known.
    """

    def __init__(self, room: FreeCapacity, end: Callable[[Task], float]) -> None:
        self.room, self.end = room, end
        self._known: dict[Shape, list[float | None]] = {}
        self._seen: dict[Shape, int] = {}
        """How many of the room's changes each has seen."""

    def when(self, shape: Shape, *, is_steady: bool) -> Sequence[float | None]:
        """When it fits on each card; None: never, or nothing begins there.

        Args:
            shape: What it takes.
            is_steady: Whether all ends are what they were for the last one; else nothing is remembered.
        """
        places, changes = self.room.places, self.room.changes
        if not is_steady or len(self._known) > _MAX_SHAPES or len(changes) > _MAX_CHANGES:
            self._known.clear()
            changes.clear()
        known = self._known.get(shape)
        if known is None:
            known = [self._when(place, shape) for place in places]
            if is_steady:
                self._known[shape] = known
        else:
            for index in set(changes[self._seen[shape] :]):
                known[index] = self._when(places[index], shape)
        self._seen[shape] = len(changes)
        return known

    def without_opportunistic(self, place: CardOccupancy, shape: Shape) -> float | None:
        """When it fits on a card if all opportunistic tasks make room; None as above."""
        return self._when(place, shape, [task for task in place.live if not task.need.opportunistic])

    def _when(self, place: CardOccupancy, shape: Shape, live: Sequence[Task] | None = None) -> float | None:
        if place.closed or not place.fits_beside(shape, ()):
            return None
        live = place.live if live is None else live
        if shape.whole:
            leases = [leaves for leaves, _ in place.leases]
            return max([*map(self.end, live), *leases], default=_NOW)
        there = [(self.end(task), task.reserved_mb) for task in live]
        there += place.leases
        there.sort(key=_by_end, reverse=True)
        staying: list[int | None] = []
        for leaves, mb in there:  # from whoever stays longest to the first one beside whom it does not fit
            staying.append(mb)
            if not place.fits_beside(shape, staying):
                return leaves
        return _NOW


_by_end = itemgetter(0)


def reserve_cards(
    task: Task,
    shape: Shape,
    leaving: ReleaseTimes,
    *,
    is_steady: bool,
    now: float,
    barred: frozenset[int],
    cost: Callable[[Task], float],
) -> Reservation | None:
    """What is kept for a task that does not fit now; None where it would not fit if all tasks had ended.

    Args:
        task: The head of the queue.
        shape: What it takes.
        leaving: When cards become free.
        is_steady: As of `ReleaseTimes.when`.
        now: Unix seconds.
        barred: Indices of cards that it must not have.
        cost: What is lost if an opportunistic task is stopped, in seconds of a card.
    """
    room = leaving.room
    if room.someday(shape) < shape.cards:
        return None
    when = leaving.when(shape, is_steady=is_steady)
    evicting = None
    if not task.need.opportunistic:
        evicting = _reserve_by_preemption(task, shape, room, when, now=now, barred=barred, cost=cost)
    return evicting or _reserve_by_ends(task, shape, leaving, when, now=now, barred=barred)


def _reserve_by_ends(
    task: Task,
    shape: Shape,
    leaving: ReleaseTimes,
    when: Sequence[float | None],
    *,
    now: float,
    barred: frozenset[int],
) -> Reservation | None:
    """The cards that become free first. Opportunistic tasks make room for it once all others have left: it
    does not wait for their ends."""
    places = leaving.room.places
    freed = list(when)
    if not task.need.opportunistic:
        for place in places:
            if place.opportunistic:
                freed[place.index] = leaving.without_opportunistic(place, shape)
    found = [
        (leaves if leaves > now else now, index)
        for index, leaves in enumerate(freed)
        if leaves is not None and index not in barred
    ]
    if len(found) < shape.cards:
        return None
    start = nsmallest(shape.cards, found)[-1][0]
    alone = [math.inf if leaves is None else leaves for leaves in when]
    in_time = [(alone[index] > start, leaves, index) for leaves, index in found if leaves <= start]
    chosen = [index for *_, index in nsmallest(shape.cards, in_time)]
    latest = _NOW if math.isinf(start) else start  # whoever has not ended by then
    making = {
        one.id: one.name
        for index in chosen
        if freed[index] != when[index] and alone[index] >= latest
        for one in places[index].live
        if one.need.opportunistic and leaving.end(one) >= latest
    }
    return Reservation(
        task,
        tuple(places[index] for index in chosen),
        None if math.isinf(start) else start,
        making_room=tuple(making.values()),
    )


def _reserve_by_preemption(
    task: Task,
    shape: Shape,
    room: FreeCapacity,
    when: Sequence[float | None],
    *,
    now: float,
    barred: frozenset[int],
    cost: Callable[[Task], float],
) -> Reservation | None:
    """The cards that opportunistic tasks give up for it, where that suffices: those that lose least."""
    places = room.places
    yielding = {
        index: _preemption_on_card(place, shape, cost)
        for index, place in enumerate(places)
        if place.opportunistic and when[index] is not None and index not in barred
    }
    if not yielding:
        return None
    found = [(lost[0], index) for index, lost in yielding.items() if lost is not None]
    found += [
        (0.0, index)
        for index, leaves in enumerate(when)
        if leaves == _NOW and index not in barred and index not in yielding
    ]
    if len(found) < shape.cards:
        return None
    chosen = [index for _, index in nsmallest(shape.cards, found)]
    gone = {one.id: one for index in chosen for one in (yielding.get(index) or (0.0, ()))[1]}
    return Reservation(
        task,
        tuple(places[index] for index in chosen),
        now,
        evictions=tuple(sorted(id for id, one in gone.items() if one.state != STOPPING)),
        making_room=tuple(one.name for one in gone.values()),
    )


def _preemption_on_card(
    place: CardOccupancy, shape: Shape, cost: Callable[[Task], float]
) -> tuple[float, Sequence[Task]] | None:
    """What is lost on a card, and whose tasks they are; None if it would not fit even then."""
    leaving = [
        (0.0 if task.state == STOPPING else cost(task), task.id, task)
        for task in place.live
        if task.need.opportunistic
    ]
    leaving.sort()
    staying = [task.reserved_mb for task in place.live if not task.need.opportunistic]
    staying += [mb for _, mb in place.leases]
    for gone in range(len(leaving) + 1):
        if place.fits_beside(shape, staying + [task.reserved_mb for *_, task in leaving[gone:]]):
            return sum(lost for lost, *_ in leaving[:gone]), [task for *_, task in leaving[:gone]]
    return None
