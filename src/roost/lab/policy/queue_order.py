"""In which order tasks are looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain
from operator import attrgetter

from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import Task

by_id, by_user = attrgetter("id"), attrgetter("user")
age_key = attrgetter("submitted", "id")
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


class TaskGroup:
    """Tasks of one priority that need the same: where there is no room for one of them, there is none for the
    others in one pass.

    Args:
        tasks: By age.
        shape: What they take.
        seconds: That they take at most, or probably; None: not known.
    """

    __slots__ = ("is_limited", "opportunistic", "priority", "reason", "seconds", "shape", "tasks", "told")

    def __init__(self, tasks: list[Task], shape: Shape, seconds: float | None) -> None:
        self.tasks, self.shape, self.seconds = tasks, shape, seconds
        self.priority, self.opportunistic = tasks[0].priority, tasks[0].need.opportunistic
        self.is_limited = tasks[0].sweep is not None and tasks[0].most_parallel is not None
        """Whether there is a number of them that may run at once."""
        self.reason = ""
        """Why they wait; empty: they may start."""
        self.told: str | None = None
        """What their reason was when it was told last."""


class UserCharges:
    """What each user has had; it grows with what is placed.

    Args:
        count: Tells it. Asked for once, and not before two users are compared.
    """

    def __init__(self, count: Callable[[], dict[str, float]]) -> None:
        self._count = count
        self._counted: dict[str, float] | None = None
        self._added: list[tuple[str, float]] = []

    def add(self, user: str, cost: float) -> None:
        if self._counted is None:
            self._added.append((user, cost))
        else:
            self._counted[user] = self._counted.get(user, 0.0) + cost

    def of(self, user: str) -> float:
        if self._counted is None:
            self._counted = self._count()
            for another, cost in self._added:
                self.add(another, cost)
        return self._counted.get(user, 0.0)


Candidates = list[tuple[TaskGroup, Sequence[Task]]]
"""Those who are alike, and which of them."""
_Placer = Callable[[Task, TaskGroup], float | None]
"""Gives what a task adds to the charge of its user; or None where it waits, and writes down why."""
_Selector = Callable[[Candidates, UserCharges | None], Candidates]
"""Those of one level that are worth looking at; without charges, those who go by age alone."""


def first_in_line(some: Candidates, charges: UserCharges | None) -> tuple[Task, TaskGroup] | None:
    """Who is looked at first; None where two users have had the same.

    Args:
        some: Of one level.
        charges: Of the users; None: they go by age alone.
    """
    some = [one for one in some if not one[0].reason]
    if charges is not None and some:
        users = set(chain.from_iterable(map(by_user, tasks) for _, tasks in some))
        least = sorted((charges.of(user), user) for user in users)[:2] if len(users) > 1 else [(0.0, *users)]
        (charge, user), *others = least
        if others and others[0][0] == charge:
            return None
        some = [(alike, [task for task in tasks if task.user == user]) for alike, tasks in some]
    firsts = [(tasks[0], alike) for alike, tasks in some if tasks]
    return min(firsts, key=lambda one: age_key(one[0]), default=None)


class QueueOrder:
    """Tasks by class, then priority, then fair share, then age.

    Fair share: the next one is always of the user who has had least, what was placed just now included. Tasks
    that have waited too long go by age alone. Where several queues share the cards, a priority counts among
    the tasks of its user: nobody comes before others by what he says himself.
    """

    def __init__(self, now: float, rules: Rules, *, shared: bool = False) -> None:
        self._shared = shared
        self._too_old = now - rules.longest_wait
        self._several_too_old = now - min(rules.longest_wait, rules.longest_wait_of_several)
        self._levels: defaultdict[_Level, Candidates] = defaultdict(list)

    def fill(self, alikes: Iterable[TaskGroup]) -> None:
        """Puts tasks where they belong; none has been told yet that it waits."""
        levels, shared = self._levels, self._shared
        for alike in alikes:
            alike.reason = ""
            tasks: Sequence[Task] = alike.tasks
            too_old = self._several_too_old if alike.shape.cards > 1 else self._too_old
            if tasks[0].submitted < too_old:
                in_time = bisect_left(tasks, too_old, key=_by_age)
                levels[alike.opportunistic, False, 0].append((alike, tasks[:in_time]))
                tasks = tasks[in_time:]
            if tasks:
                levels[alike.opportunistic, True, 0 if shared else -alike.priority].append((alike, tasks))

    def walk(self, charges: UserCharges, choose: _Selector, place: _Placer) -> None:
        """Offers each task once, but for those of which it is known already that they wait.

        Args:
            charges: Of the users; what is placed is added.
            choose: Those that are offered: of most it is known beforehand that there is no room for them.
            place: Starts a task.
        """
        for level in sorted(self._levels):
            offered: list[Task] = []
            may_start: set[str] = set()
            alike_of: dict[str, TaskGroup] = {}
            _, in_time, _ = level
            for alike, tasks in choose(self._levels[level], charges if in_time else None):
                offered += tasks
                alike_of.update(dict.fromkeys(map(by_id, tasks), alike))
                if not alike.reason:
                    may_start.update(map(by_user, tasks))
            offered = by_age(offered)
            if self._shared:
                offered.sort(key=_by_priority, reverse=True)
            lanes = defaultdict(list)
            for task in offered:
                lanes[task.user if in_time else ""].append(task)
            for user in lanes.keys() - may_start if in_time else ():
                del lanes[user]
            _offer_lanes(lanes, alike_of, charges, place)


def _offer_lanes(
    lanes: dict[str, list[Task]], alike_of: dict[str, TaskGroup], charges: UserCharges, place: _Placer
) -> None:
    is_alone = len(lanes) == 1
    # By the number of the next task, so that nobody is asked again before something was placed.
    heap = [
        (0.0 if is_alone else charges.of(user), tasks[0].submitted, user, 0) for user, tasks in lanes.items()
    ]
    heapify(heap)
    while heap:
        _, _, user, at = heap[0]
        tasks = lanes[user]
        at, cost = _first_placed(tasks, alike_of, at, place)
        if cost is not None:
            charges.add(tasks[at - 1].user, cost)
        if at == len(tasks):
            heappop(heap)
        else:
            charge = 0.0 if is_alone else charges.of(user)
            heapreplace(heap, (charge, tasks[at].submitted, user, at))


def _first_placed(
    tasks: Sequence[Task], alike_of: dict[str, TaskGroup], at: int, place: _Placer
) -> tuple[int, float | None]:
    for index in range(at, len(tasks)):
        task = tasks[index]
        alike = alike_of[task.id]
        if not alike.reason:
            cost = place(task, alike)
            if cost is not None:
                return index + 1, cost
    return len(tasks), None
