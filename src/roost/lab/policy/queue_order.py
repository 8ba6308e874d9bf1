"""The order in which a scheduling pass considers the tasks."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import inf
from operator import attrgetter

from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.host_share import NO_SHARE, HostShare
from roost.lab.policy.policy_state import Rules
from roost.lab.policy.reason_codes import CONDITION_CODES, reason_code
from roost.lab.queue.task import Task

by_id, by_user = attrgetter("id"), attrgetter("user")
age_key = attrgetter("submitted", "id")
_by_age, _by_priority = attrgetter("submitted"), attrgetter("priority")

Level = tuple[bool, bool, int]
"""Class (opportunistic or not), whether it has waited less than the limit, and minus the priority; the
smallest comes first."""


def by_age(tasks: Iterable[Task]) -> list[Task]:
    """Returns the tasks by submission, the oldest first; by id if they were submitted at the same time."""
    # Two sorts, because rows mostly come in both orders already, which makes each of them quick.
    found = sorted(tasks, key=by_id)
    found.sort(key=_by_age)
    return found


def first_of_each_user(tasks: Sequence[Task]) -> Sequence[Task]:
    """Returns the oldest task of each user, of tasks sorted by age."""
    if len(tasks) == 1:
        return tasks
    return list(dict(zip(map(by_user, reversed(tasks)), reversed(tasks), strict=True)).values())


class TaskGroup:
    """Tasks of one priority with equal requests: if one of them does not fit in a pass, none of them does.

    Args:
        tasks: By age.
        shape: The cards and memory of each.
        seconds: The run time of each; None: not known.
    """

    __slots__ = (
        "host_share",
        "is_limited",
        "opportunistic",
        "priority",
        "reason",
        "reported_reason",
        "seconds",
        "shape",
        "tasks",
    )

    def __init__(self, tasks: list[Task], shape: Shape, seconds: float | None) -> None:
        self.tasks, self.shape, self.seconds = tasks, shape, seconds
        self.priority, self.opportunistic = tasks[0].priority, tasks[0].need.opportunistic
        self.host_share = HostShare.from_need(tasks[0].need)
        """The part of the host that each takes."""
        self.is_limited = tasks[0].sweep is not None and tasks[0].most_parallel is not None
        """Whether only a number of them may run at once (a sweep with a limit)."""
        self.reason = ""
        """Why they wait in this pass; empty: they may start."""
        self.reported_reason: str | None = None
        """The reason when it was last reported."""


class UserCharges:
    """The usage of each user, which decides the fair share; it grows with the tasks that are placed.

    Args:
        count: Computes the usage. Called once, and not before two users are compared.
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

    def charge_of(self, user: str) -> float:
        if self._counted is None:
            self._counted = self._count()
            for another, cost in self._added:
                self.add(another, cost)
        return self._counted.get(user, 0.0)


Candidates = list[tuple[TaskGroup, Sequence[Task]]]
"""Groups, each with the tasks of it that are considered."""
_Placer = Callable[[Task, TaskGroup], float | None]
"""Places a task: returns what it adds to the charge of its user, or None if it waits, and sets the reason of
its group."""
_Selector = Callable[[Candidates, UserCharges | None], Candidates]
"""Returns the tasks of one level that are worth trying; the charges are None if the level is ordered by age
alone."""


def first_in_line(candidates: Candidates, charges: UserCharges | None) -> tuple[Task, TaskGroup] | None:
    """Returns the task that is considered first; None if two users have the same usage.

    Args:
        candidates: Of one level.
        charges: Of the users; None: the level is ordered by age alone.
    """
    candidates = [one for one in candidates if not one[0].reason]
    if charges is not None and candidates:
        users = set(chain.from_iterable(map(by_user, tasks) for _, tasks in candidates))
        least = (
            sorted((charges.charge_of(user), user) for user in users)[:2]
            if len(users) > 1
            else [(0.0, *users)]
        )
        (charge, user), *others = least
        if others and others[0][0] == charge:
            return None
        candidates = [(group, [task for task in tasks if task.user == user]) for group, tasks in candidates]
    firsts = [(tasks[0], group) for group, tasks in candidates if tasks]
    return min(firsts, key=lambda one: age_key(one[0]), default=None)


def count_ahead(pending: Iterable[Task], now: float, rules: Rules) -> dict[str, int]:
    """Returns how many tasks are considered before each pending task, by id.

    Tasks that wait for a hold, a time or another task have no place and are not counted. Nor has any task a
    place if several users have tasks: their order changes with each start.
    """
    waiting = [one for one in pending if not one.held and reason_code(one.reason) not in CONDITION_CODES]
    if len(set(map(by_user, waiting))) > 1:
        return {}
    waiting.sort(key=lambda one: (_level(one, now, rules), *age_key(one)))
    return {one.id: place for place, one in enumerate(waiting)}


def _level(task: Task, now: float, rules: Rules) -> Level:
    """Returns the level in which `QueueOrder` sorts a task."""
    limits = (rules.longest_wait, rules.longest_wait_of_several)
    is_in_time = task.submitted >= now - (min(limits) if task.need.cards > 1 else limits[0])
    return task.need.opportunistic, is_in_time, -task.priority if is_in_time else 0


class QueueOrder:
    """Tasks by class, then priority, then fair share, then age.

    Fair share: the next task is always of the user with the least usage, including the tasks placed just now.
    Tasks that have waited too long are ordered by age alone. Where several queues share the cards, a priority
    counts only among the tasks of its user: no user can pass others by a priority that they set themselves.
    """

    def __init__(self, now: float, rules: Rules, *, shared: bool = False) -> None:
        self._shared = shared
        self._too_old = now - rules.longest_wait
        self._several_too_old = now - min(rules.longest_wait, rules.longest_wait_of_several)
        self._levels: defaultdict[Level, Candidates] = defaultdict(list)

    def add_groups(self, groups: Iterable[TaskGroup]) -> None:
        """Sorts groups into levels and clears their reasons."""
        levels, shared = self._levels, self._shared
        for group in groups:
            group.reason = ""
            tasks: Sequence[Task] = group.tasks
            too_old = self._several_too_old if group.shape.cards > 1 else self._too_old
            if tasks[0].submitted < too_old:
                in_time = bisect_left(tasks, too_old, key=_by_age)
                levels[group.opportunistic, False, 0].append((group, tasks[:in_time]))
                tasks = tasks[in_time:]
            if tasks:
                levels[group.opportunistic, True, 0 if shared else -group.priority].append((group, tasks))

    @property
    def levels(self) -> Sequence[Level]:
        """The levels that have tasks, the first one first."""
        return sorted(self._levels)

    def oldest_on_host(self, level: Level) -> float:
        """Returns when the oldest task of a level was submitted that takes a part of the host; infinity if
        none does."""
        groups = self._levels.get(level, ())
        return min(
            [tasks[0].submitted for group, tasks in groups if group.host_share is not NO_SHARE], default=inf
        )

    def offer_tasks(
        self,
        charges: UserCharges,
        select: _Selector,
        place: _Placer,
        *,
        levels: Sequence[Level] | None = None,
    ) -> None:
        """Offers each task once, except those whose group is known to wait.

        Args:
            charges: Of the users; placed tasks are added.
            select: Selects the tasks that are offered: most are known in advance not to fit.
            place: Places a task, or sets why its group waits.
            levels: Only these levels, as far as they have tasks; None: all.
        """
        for level in self.levels if levels is None else [one for one in levels if one in self._levels]:
            offered: list[Task] = []
            may_start: set[str] = set()
            group_of: dict[str, TaskGroup] = {}
            _, in_time, _ = level
            for group, tasks in select(self._levels[level], charges if in_time else None):
                offered += tasks
                group_of.update(dict.fromkeys(map(by_id, tasks), group))
                if not group.reason:
                    may_start.update(map(by_user, tasks))
            offered = by_age(offered)
            if self._shared:
                offered.sort(key=_by_priority, reverse=True)
            lanes = defaultdict(list)
            for task in offered:
                lanes[task.user if in_time else ""].append(task)
            for user in lanes.keys() - may_start if in_time else ():
                del lanes[user]
            _offer_lanes(lanes, group_of, charges, place)


def _offer_lanes(
    lanes: dict[str, list[Task]], group_of: dict[str, TaskGroup], charges: UserCharges, place: _Placer
) -> None:
    is_alone = len(lanes) == 1
    # With the number of the next task, so that a task is not tried again before another one was placed.
    heap = [
        (0.0 if is_alone else charges.charge_of(user), tasks[0].submitted, user, 0)
        for user, tasks in lanes.items()
    ]
    heapify(heap)
    while heap:
        _, _, user, at = heap[0]
        tasks = lanes[user]
        at, cost = _first_placed(tasks, group_of, at, place)
        if cost is not None:
            charges.add(tasks[at - 1].user, cost)
        if at == len(tasks):
            heappop(heap)
        else:
            charge = 0.0 if is_alone else charges.charge_of(user)
            heapreplace(heap, (charge, tasks[at].submitted, user, at))


def _first_placed(
    tasks: Sequence[Task], group_of: dict[str, TaskGroup], at: int, place: _Placer
) -> tuple[int, float | None]:
    for index in range(at, len(tasks)):
        task = tasks[index]
        group = group_of[task.id]
        if not group.reason:
            cost = place(task, group)
            if cost is not None:
                return index + 1, cost
    return len(tasks), None
