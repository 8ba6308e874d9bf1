"""The cores of the CPU, as tasks take them that have no card."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roost.lab.policy import wait_reasons
from roost.lab.queue.task import Need, Task


def num_cores(need: Need) -> int:
    """How many a task takes; one where it does not say."""
    return 1 if need.cores is None else need.cores


class CoreCapacity:
    """What is left of them; it shrinks while tasks are placed.

    They are given out in the order of the queue. Cores are kept for the first task that needs more than are
    left, else tasks of one would pass it over for ever: a later one starts if it has ended by then, or if as
    many are left beside. Where something that it waits for has no known end, whatever has an end may start.

    Args:
        most: How many tasks may have together.
        live: The tasks of the CPU that live.
        end: When one of those ends; infinity where that is not known.
        now: Unix seconds.
    """

    def __init__(self, most: int, live: Iterable[Task], *, end: Callable[[Task], float], now: float) -> None:
        self._most, self._now = most, now
        self._live = [(end(task), num_cores(task.need), task.name) for task in live]
        self._left = most - sum(cores for _, cores, _ in self._live)
        self._head: Task | None = None
        self._start, self._beside = 0.0, 0
        """When the head starts, and how many cores are left beside it then."""

    @property
    def are_taken(self) -> bool:
        """Whether nothing more begins."""
        return self._left <= 0

    def take(self, task: Task, seconds: float | None) -> str | None:
        """Gives a task its cores; or why it waits.

        Args:
            task: They are asked for in the order of the queue, none that needs more than there are.
            seconds: How long it takes at most, or probably; None where that is not known.
        """
        cores = num_cores(task.need)
        if cores > self._left:
            if self._head is None:
                self._keep(task, cores)
            holders = ((cores, name) for _, cores, name in self._live)
            return wait_reasons.cores(cores, self._left, self._most, holders=holders)
        end = float("inf") if seconds is None else self._now + seconds
        if self._head is not None and (seconds is None or end > self._start):
            if cores > self._beside:
                return wait_reasons.cores_reserved(
                    self._head, num_cores(self._head.need), self._start, self._now
                )
            self._beside -= cores
        self._left -= cores
        self._live.append((end, cores, task.name))
        return None

    def _keep(self, task: Task, cores: int) -> None:
        left, self._head = self._left, task
        for end, freed, _ in sorted(self._live):
            self._start, left = end, left + freed
            if left >= cores:
                break
        self._beside = left - cores
