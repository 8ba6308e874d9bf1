"""The reservation: the cards that are kept for the first blocked task (EASY backfill).

Lifka, The ANL/IBM SP Scheduling System, 1995: a later task may start if it ends before the first blocked task
would start, or if it uses cards that this one does not need.
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
    """The cards that are reserved for the first blocked task, and its start."""

    task: Task
    occupancies: tuple[CardOccupancy, ...]
    start: float | None
    """Unix seconds; None: a task that it waits for has no known end."""
    preemptions: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    """The names of the opportunistic tasks that are preempted for it: now, or at its start if that is
    later."""


class ReleaseTimes:
    """The times at which cards become free as their tasks and leases end. The times of a shape are cached,
    and computed again for the cards whose tasks have changed.

    Args:
        free_capacity: The cards; changes during a pass.
        end: Gives the end of a live task; infinity where it is not known.
    """

    def __init__(self, free_capacity: FreeCapacity, end: Callable[[Task], float]) -> None:
        self.free_capacity, self.end = free_capacity, end
        self._known: dict[Shape, list[float | None]] = {}
        self._num_considered: dict[Shape, int] = {}
        """How many of the changes of the cards are considered in the times of a shape."""

    def when_free(self, shape: Shape, *, ends_are_fixed: bool) -> Sequence[float | None]:
        """Returns for each card the time from which the shape fits on it; None: never, or the card is closed.

        Args:
            shape: The requested cards and memory.
            ends_are_fixed: Whether all ends are the same as at the last call; else the cache is dropped.
        """
        occupancies, changes = self.free_capacity.occupancies, self.free_capacity.changes
        if not ends_are_fixed or len(self._known) > _MAX_SHAPES or len(changes) > _MAX_CHANGES:
            self._known.clear()
            changes.clear()
        known = self._known.get(shape)
        if known is None:
            known = [self._when_card_is_free(occupancy, shape) for occupancy in occupancies]
            if ends_are_fixed:
                self._known[shape] = known
        else:
            for index in set(changes[self._num_considered[shape] :]):
                known[index] = self._when_card_is_free(occupancies[index], shape)
        self._num_considered[shape] = len(changes)
        return known

    def without_opportunistic(self, occupancy: CardOccupancy, shape: Shape) -> float | None:
        """Returns the same for one card without its opportunistic tasks."""
        return self._when_card_is_free(
            occupancy, shape, [task for task in occupancy.live if not task.need.opportunistic]
        )

    def _when_card_is_free(
        self, occupancy: CardOccupancy, shape: Shape, live: Sequence[Task] | None = None
    ) -> float | None:
        if occupancy.closed_reason or not occupancy.fits_with(shape, ()):
            return None
        live = occupancy.live if live is None else live
        if shape.whole:
            leases = [leaves for leaves, _ in occupancy.leases]
            return max([*map(self.end, live), *leases], default=_NOW)
        there = [(self.end(task), task.reserved_mb) for task in live]
        there += occupancy.leases
        there.sort(key=_by_end, reverse=True)
        staying: list[int | None] = []
        for leaves, mb in there:  # from the latest end to the first one together with which it does not fit
            staying.append(mb)
            if not occupancy.fits_with(shape, staying):
                return leaves
        return _NOW


_by_end = itemgetter(0)


def reserve_cards(
    task: Task,
    shape: Shape,
    release_times: ReleaseTimes,
    *,
    ends_are_fixed: bool,
    now: float,
    barred: frozenset[int],
    cost: Callable[[Task], float],
) -> Reservation | None:
    """Reserves cards for a task that does not fit now; returns None if it would not fit if all tasks had
    ended.

    Args:
        task: The first blocked task.
        shape: Its cards and memory.
        release_times: The times at which cards become free.
        ends_are_fixed: As in `ReleaseTimes.when_free`.
        now: Unix seconds.
        barred: Indices of cards that the task must not have.
        cost: Gives what is lost if an opportunistic task is preempted, in card-seconds.
    """
    free_capacity = release_times.free_capacity
    if free_capacity.num_fitting_when_idle(shape) < shape.cards:
        return None
    when = release_times.when_free(shape, ends_are_fixed=ends_are_fixed)
    by_preemption = None
    if not task.need.opportunistic:
        by_preemption = _reserve_by_preemption(
            task, shape, free_capacity, when, now=now, barred=barred, cost=cost
        )
    return by_preemption or _reserve_by_ends(task, shape, release_times, when, now=now, barred=barred)


def _reserve_by_ends(
    task: Task,
    shape: Shape,
    release_times: ReleaseTimes,
    when: Sequence[float | None],
    *,
    now: float,
    barred: frozenset[int],
) -> Reservation | None:
    """Reserves the cards that become free first. Opportunistic tasks are preempted once all others have
    ended: the task does not wait for their ends."""
    occupancies = release_times.free_capacity.occupancies
    freed = list(when)
    if not task.need.opportunistic:
        for occupancy in occupancies:
            if occupancy.opportunistic:
                freed[occupancy.index] = release_times.without_opportunistic(occupancy, shape)
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
    latest = _NOW if math.isinf(start) else start  # tasks that end later are preempted
    preempted = {
        one.id: one.name
        for index in chosen
        if freed[index] != when[index] and alone[index] >= latest
        for one in occupancies[index].live
        if one.need.opportunistic and release_times.end(one) >= latest
    }
    return Reservation(
        task,
        tuple(occupancies[index] for index in chosen),
        None if math.isinf(start) else start,
        preempted=tuple(preempted.values()),
    )


def _reserve_by_preemption(
    task: Task,
    shape: Shape,
    free_capacity: FreeCapacity,
    when: Sequence[float | None],
    *,
    now: float,
    barred: frozenset[int],
    cost: Callable[[Task], float],
) -> Reservation | None:
    """Reserves cards of opportunistic tasks, those whose preemption loses least; None if they do not
    suffice."""
    occupancies = free_capacity.occupancies
    yielding = {
        index: _preemption_on_card(occupancy, shape, cost)
        for index, occupancy in enumerate(occupancies)
        if occupancy.opportunistic and when[index] is not None and index not in barred
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
        tuple(occupancies[index] for index in chosen),
        now,
        preemptions=tuple(sorted(id for id, one in gone.items() if one.state != STOPPING)),
        preempted=tuple(one.name for one in gone.values()),
    )


def _preemption_on_card(
    occupancy: CardOccupancy, shape: Shape, cost: Callable[[Task], float]
) -> tuple[float, Sequence[Task]] | None:
    """Returns the cost of making the shape fit on a card, and the tasks to preempt; None if none suffice."""
    opportunistic = [
        (0.0 if task.state == STOPPING else cost(task), task.id, task)
        for task in occupancy.live
        if task.need.opportunistic
    ]
    opportunistic.sort()
    staying = [task.reserved_mb for task in occupancy.live if not task.need.opportunistic]
    staying += [mb for _, mb in occupancy.leases]
    for gone in range(len(opportunistic) + 1):
        if occupancy.fits_with(shape, staying + [task.reserved_mb for *_, task in opportunistic[gone:]]):
            return sum(lost for lost, *_ in opportunistic[:gone]), [task for *_, task in opportunistic[:gone]]
    return None
