"""The CPU cores for tasks without a card."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roost.devices.resource_request import ResourceRequest
from roost.lab.policy import wait_reasons
from roost.lab.queue.task import Task


def num_cores(need: ResourceRequest) -> int:
    """Returns how many cores a task takes; one if it names no number."""
    return 1 if need.cores is None else need.cores


class CoreCapacity:
    """The free CPU cores; they shrink while tasks are placed.

    Cores are given out in the order of the queue. They are reserved for the first task that needs more than
    are free, else tasks of one core would overtake it for ever: a later one starts if it has ended by then,
    or if enough cores remain in addition. If a task that the first one waits for has no known end, each task
    with an end may start.

    Args:
        most: How many cores tasks may have together.
        live: The live tasks without a card.
        end: Gives the end of a live task; infinity where it is not known.
        now: Unix seconds.
    """

    def __init__(self, most: int, live: Iterable[Task], *, end: Callable[[Task], float], now: float) -> None:
        self._most, self._now = most, now
        self._live = [(end(task), num_cores(task.need), task.name) for task in live]
        self._free = most - sum(cores for _, cores, _ in self._live)
        self._first_blocked: Task | None = None
        self._reserved_start, self._spare = 0.0, 0
        """When the first blocked task starts, and how many cores remain in addition to its own then."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no core is free."""
        return self._free <= 0

    def allocate(self, task: Task, seconds: float | None) -> str | None:
        """Gives cores to a task, or returns why it waits.

        Args:
            task: The next task in the order of the queue; it needs no more cores than `most`.
            seconds: Its run time; None where it is not known.
        """
        cores = num_cores(task.need)
        if cores > self._free:
            if self._first_blocked is None:
                self._reserve(task, cores)
            holders = ((cores, name) for _, cores, name in self._live)
            return wait_reasons.cores(cores, self._free, self._most, holders=holders)
        end = float("inf") if seconds is None else self._now + seconds
        if self._first_blocked is not None and (seconds is None or end > self._reserved_start):
            if cores > self._spare:
                return wait_reasons.cores_reserved(
                    self._first_blocked, num_cores(self._first_blocked.need), self._reserved_start, self._now
                )
            self._spare -= cores
        self._free -= cores
        self._live.append((end, cores, task.name))
        return None

    def _reserve(self, task: Task, cores: int) -> None:
        left, self._first_blocked = self._free, task
        for end, freed, _ in sorted(self._live):
            self._reserved_start, left = end, left + freed
            if left >= cores:
                break
        self._spare = left - cores
