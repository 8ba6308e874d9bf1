"""In which order tasks are looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from roost.lab.policy.room import Shape
from roost.lab.policy.state import Rules
from roost.lab.task import Task

by_id, by_user = attrgetter("id"), attrgetter("user")
_by_age, _by_priority = attrgetter("submitted"), attrgetter("priority")

_Level = tuple[bool, bool, int]
"""Class, whether it is in time, and priority; the smallest comes first."""


def by_age(tasks: Iterable[Task]) -> list[Task]:
    """The oldest first; of those of one time, by id."""
    # Twice, because rows mostly come in both orders already, which makes sorting quick.
    found = sorted(tasks, key=by_id)
    found.sort(key=_by_age)
    return found


def first_of_each_user(tasks: Sequence[Task]) -> Sequence[Task]:
    """Of tasks that come by age."""
    if len(tasks) == 1:
        return tasks
    return list(dict(zip(map(by_user, reversed(tasks)), reversed(tasks), strict=True)).values())


class Alike:
    """Tasks of one priority that need the same: where there is no room for one of them, there is none for the
    others in one pass.

    Args:
        tasks: By age.
        shape: What they take.
        seconds: That they take at most, or probably; None: not known.
    """

    __slots__ = ("opportunistic", "priority", "reason", "seconds", "shape", "tasks")

    def __init__(self, tasks: Sequence[Task], shape: Shape, seconds: float | None) -> None:
        self.tasks, self.shape, self.seconds = tasks, shape, seconds
        self.priority, self.opportunistic = tasks[0].priority, tasks[0].need.opportunistic
        self.reason = ""
        """Why they wait; empty: they may start."""


_Placer = Callable[[Task, Alike], float | None]
"""Gives what a task adds to the charge of its user; or None where it waits, and writes down why."""
_Chooser = Callable[[Alike, Sequence[Task]], Sequence[Task]]
"""Those of such tasks that are worth looking at."""


class Queue:
    """Tasks by class, then priority, then fair share, then age.

    Fair share: the next one is always of the user who has had least, what was placed just now included. Tasks
    that have waited too long go by age alone. Where several queues share the cards, a priority counts among
    the tasks of its user: nobody comes before others by what he says himself.
    """

    def __init__(self, now: float, rules: Rules, *, shared: bool = False) -> None:
        self._shared = shared
        self._too_old = now - rules.longest_wait
        self._several_too_old = now - min(rules.longest_wait, rules.longest_wait_of_several)
        self._levels: defaultdict[_Level, list[tuple[Alike, Sequence[Task]]]] = defaultdict(list)

    def add(self, alike: Alike) -> None:
        tasks = alike.tasks
        too_old = self._several_too_old if alike.shape.cards > 1 else self._too_old
        if tasks[0].submitted < too_old:
            in_time = bisect_left(tasks, too_old, key=_by_age)
            self._levels[alike.opportunistic, False, 0].append((alike, tasks[:in_time]))
            tasks = tasks[in_time:]
        if tasks:
            priority = 0 if self._shared else -alike.priority
            self._levels[alike.opportunistic, True, priority].append((alike, tasks))

    def walk(self, charge: dict[str, float], choose: _Chooser, place: _Placer) -> None:
        """Offers each task once, but for those of which it is known already that they wait.

        Args:
            charge: What each user has had; grows with what is placed.
            choose: Those that are offered: of most it is known beforehand that there is no room for them.
            place: Starts a task.
        """
        for level in sorted(self._levels):
            offered: list[Task] = []
            alike_of: dict[str, Alike] = {}
            for alike, tasks in self._levels[level]:
                if chosen := choose(alike, tasks):
                    offered += chosen
                    alike_of.update(dict.fromkeys(map(by_id, chosen), alike))
            offered = by_age(offered)
            if self._shared:
                offered.sort(key=_by_priority, reverse=True)
            lanes = defaultdict(list)
            _, in_time, _ = level
            for task in offered:
                lanes[task.user if in_time else ""].append(task)
            _walk(lanes, alike_of, charge, place)


def _walk(
    lanes: dict[str, list[Task]], alike_of: dict[str, Alike], charge: dict[str, float], place: _Placer
) -> None:
    # By the number of the next task, so that nobody is asked again before something was placed.
    heap = [(charge.get(user, 0.0), tasks[0].submitted, user, 0) for user, tasks in lanes.items()]
    heapify(heap)
    while heap:
        _, _, user, at = heap[0]
        tasks = lanes[user]
        at, cost = _first_placed(tasks, alike_of, at, place)
        if cost is not None:
            owner = tasks[at - 1].user
            charge[owner] = charge.get(owner, 0.0) + cost
        if at == len(tasks):
            heappop(heap)
        else:
            heapreplace(heap, (charge.get(user, 0.0), tasks[at].submitted, user, at))


def _first_placed(
    tasks: Sequence[Task], alike_of: dict[str, Alike], at: int, place: _Placer
) -> tuple[int, float | None]:
    for index in range(at, len(tasks)):
        task = tasks[index]
        alike = alike_of[task.id]
        if not alike.reason:
            cost = place(task, alike)
            if cost is not None:
                return index + 1, cost
    return len(tasks), None
