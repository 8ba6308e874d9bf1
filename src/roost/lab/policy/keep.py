"""The one reservation: cards that are kept for the task at the head of the queue (EASY backfill).

Lifka, The ANL/IBM SP Scheduling System, 1995: whoever comes later may start if it ends before the head would
start, or uses cards that the head does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from roost.lab.policy.room import Place, Room, Shape
from roost.lab.task import STOPPING, Task


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept, for whom."""

    task: Task
    places: tuple[Place, ...]
    start: float | None
    """None: something that it waits for has no known end."""
    evictions: tuple[str, ...] = ()


def keep(
    task: Task,
    shape: Shape,
    room: Room,
    *,
    now: float,
    barred: frozenset[int],
    end: Callable[[Task], float],
    cost: Callable[[Task], float],
) -> Kept | None:
    """What is kept for a task that does not fit now; None where it would not fit if all tasks had ended.

    Args:
        task: The head of the queue.
        shape: What it takes.
        room: What is left.
        now: Unix seconds.
        barred: Indices of cards that it must not have.
        end: When a live task ends; infinity where that is not known.
        cost: What is lost if an opportunistic task is stopped, in seconds of a card.
    """
    if room.someday(shape) < shape.cards:
        return None
    places = [place for place in room.places if not place.closed and place.index not in barred]
    if not task.need.opportunistic and any(one.need.opportunistic for place in places for one in place.live):
        evicting = _by_evictions(task, shape, places, now=now, cost=cost)
        if evicting is not None:
            return evicting
    found = []
    for place in places:
        when = _when(place, shape, now, end)
        if when is not None:
            found.append((when, place.index, place))
    if len(found) < shape.cards:
        return None
    found.sort()
    chosen = found[: shape.cards]
    start = chosen[-1][0]
    return Kept(task, tuple(place for *_, place in chosen), None if math.isinf(start) else start)


_by_end = itemgetter(0)


def _when(place: Place, shape: Shape, now: float, end: Callable[[Task], float]) -> float | None:
    """When it fits there, if those who are there leave one after the other; None: not even then."""
    if not place.fits_beside(shape, ()):
        return None
    there = [(end(task), task.reserved_mb) for task in place.live]
    there += place.leases
    if shape.whole:
        return max([now, *[leaves for leaves, _ in there]])
    there.sort(key=_by_end, reverse=True)
    staying: list[int | None] = []
    for leaves, mb in there:  # from whoever stays longest to the first one beside whom it does not fit
        staying.append(mb)
        if not place.fits_beside(shape, staying):
            return max(leaves, now)
    return now


def _by_evictions(
    task: Task, shape: Shape, places: Sequence[Place], *, now: float, cost: Callable[[Task], float]
) -> Kept | None:
    """The cards that opportunistic tasks give up for it, where that suffices: those that lose least."""
    found = []
    for place in places:
        lost = _given_up(place, shape, cost)
        if lost is not None:
            found.append((lost[0], place.index, place, lost[1]))
    if len(found) < shape.cards:
        return None
    found.sort(key=lambda one: one[:2])
    chosen = found[: shape.cards]
    evicted = {one.id for *_, given_up in chosen for one in given_up if one.state != STOPPING}
    return Kept(task, tuple(one[2] for one in chosen), now, tuple(sorted(evicted)))


def _given_up(
    place: Place, shape: Shape, cost: Callable[[Task], float]
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
