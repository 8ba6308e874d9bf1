"""In which order tasks are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from operator import attrgetter

from roost.lab.policy.state import Rules
from roost.lab.task import Task

_by_id, _by_age = attrgetter("id"), attrgetter("submitted")

_Lane = tuple[bool, bool, int, str]
"""Class, whether it is in time, priority and user; the smallest comes first."""


def by_age(tasks: Iterable[Task]) -> list[Task]:
    """The oldest first; of those of one time, by id."""
    # Twice, because rows mostly come in both orders already, which makes sorting quick.
    found = sorted(tasks, key=_by_id)
    found.sort(key=_by_age)
    return found


class Queue:
    """Tasks by class, then priority, then fair share, then age.

    Fair share: the next one is always of the user who has had least, what was placed just now included. Tasks
    that have waited too long go by age alone.
    """

    def __init__(self, now: float, rules: Rules) -> None:
        self._too_old = now - rules.longest_wait
        self._several_too_old = now - min(rules.longest_wait, rules.longest_wait_of_several)
        self._lanes: dict[_Lane, list[Task]] = {}

    def add(self, task: Task) -> None:
        """Tasks come by age."""
        need = task.need
        if task.submitted < (self._several_too_old if need.cards > 1 else self._too_old):
            lane: _Lane = (need.opportunistic, False, 0, "")
        else:
            lane = (need.opportunistic, True, -task.priority, task.user)
        tasks = self._lanes.get(lane)
        if tasks is None:
            self._lanes[lane] = [task]
        else:
            tasks.append(task)

    def walk(self, charge: dict[str, float], place: Callable[[Task], float | None]) -> None:
        """Offers each task once.

        Args:
            charge: What each user has had; grows with what is placed.
            place: Gives what a task adds to it, or None where it waits.
        """
        for _, lanes in groupby(sorted(self._lanes), key=lambda lane: lane[:3]):
            users = {lane[3]: self._lanes[lane] for lane in lanes}
            # By the number of the next task, so that nobody is asked again before something was placed.
            heap = [(charge.get(user, 0.0), tasks[0].submitted, user, 0) for user, tasks in users.items()]
            heapify(heap)
            while heap:
                _, _, user, at = heap[0]
                tasks = users[user]
                at, cost = _first_placed(tasks, at, place)
                if cost is not None:
                    owner = tasks[at - 1].user
                    charge[owner] = charge.get(owner, 0.0) + cost
                if at == len(tasks):
                    heappop(heap)
                else:
                    heapreplace(heap, (charge.get(user, 0.0), tasks[at].submitted, user, at))


def _first_placed(
    tasks: list[Task], at: int, place: Callable[[Task], float | None]
) -> tuple[int, float | None]:
    for index in range(at, len(tasks)):
        cost = place(tasks[index])
        if cost is not None:
            return index + 1, cost
    return len(tasks), None
