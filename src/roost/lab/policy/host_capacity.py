"""The CPU cores and the memory of the host, which tasks with and without a card share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from roost.lab.policy import wait_reasons
from roost.lab.policy.host_share import NO_SHARE, HostShare
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import STOPPING, Task

_UNKNOWN_MB = 1 << 50
"""The assumed memory of a host that does not report it."""


class _Holder(NamedTuple):
    end: float
    share: HostShare
    name: str
    task: Task


class HostCapacity:
    """The free cores and memory of the host; they shrink while tasks are placed.

    Both are given out in the order of the queue. They are reserved for the first task that needs more than is
    free, else small tasks would overtake it for ever: a later one starts if it has ended by then, or if
    enough remains in addition. If a task that the first one waits for has no known end, each task with an end
    may start. Opportunistic tasks are preempted for a first task that is not opportunistic itself.

    Args:
        rules: How much tasks may have together.
        live: The live tasks with a share of the host.
        end: Gives the end of a live task; infinity where it is not known.
        cost: Gives what is lost if an opportunistic task is preempted.
        now: Unix seconds.
    """

    def __init__(
        self,
        rules: Rules,
        live: Iterable[Task],
        *,
        end: Callable[[Task], float],
        cost: Callable[[Task], float],
        now: float,
    ) -> None:
        memory_mb = _UNKNOWN_MB if rules.host_memory_mb is None else rules.host_memory_mb
        self._most, self._cost, self._now = HostShare(rules.cores, memory_mb), cost, now
        self._holders = [_Holder(end(task), HostShare.from_need(task.need), task.name, task) for task in live]
        given_mb = sum([holder.share.mb for holder in self._holders])
        given_cores = sum([holder.share.cores for holder in self._holders])
        self._free = HostShare(rules.cores - given_cores, memory_mb - given_mb)
        self._first_blocked: Task | None = None
        self._reserved_start, self._spare = 0.0, NO_SHARE
        """When the first blocked task starts, and how much remains in addition to its own share then."""
        self.preemptions: tuple[str, ...] = ()
        """Live tasks to stop, by id: the first blocked task gets their share."""

    @property
    def has_no_core(self) -> bool:
        """Whether no core is free."""
        return self._free.cores <= 0

    def refusal_reason(self, task: Task, share: HostShare, seconds: float | None) -> str | None:
        """Returns why a task waits for the host; None if it may start. Reserves for the first blocked task.

        Args:
            task: The next task in the order of the queue.
            share: Its share, no more than tasks may have together.
            seconds: Its run time; None where it is not known.
        """
        if not share.fits_into(self._free):
            if self._first_blocked is None:
                self.reserve(task, share, not_before=self._now, may_preempt=True)
            return self._lack(share)
        first = self._first_blocked
        if first is None or not self._outlasts_reservation(seconds) or share.fits_into(self._spare):
            return None
        kept = HostShare.from_need(first.need)
        return wait_reasons.host_reserved(first, kept, self._reserved_start, self._now)

    def allocate(self, task: Task, share: HostShare, seconds: float | None) -> None:
        """Gives its share to a task that `refusal_reason` lets start."""
        if self._first_blocked is not None and self._outlasts_reservation(seconds):
            self._spare = self._spare.minus(share)
        self._free = self._free.minus(share)
        end = math.inf if seconds is None else self._now + seconds
        self._holders.append(_Holder(end, share, task.name, task))

    def start_of(self, share: HostShare) -> float:
        """Returns when a task that waits for the host starts at the earliest, as far as known; infinity where
        it is not."""
        if self.preemptions:
            return self._now
        return max(self._when_free(share, self._now)[0], self._reserved_start)

    def reserve(self, task: Task, share: HostShare, *, not_before: float, may_preempt: bool = False) -> float:
        """Reserves for a task, unless a task is reserved for already; returns when it starts, infinity where
        that is not known.

        Args:
            task: A task that waits for the host, or for cards.
            share: Its share.
            not_before: When its cards are free.
            may_preempt: Whether opportunistic tasks may be preempted for it now.
        """
        if self._first_blocked is not None:
            return max(self.start_of(share), not_before)
        self._first_blocked = task
        if may_preempt and not task.need.opportunistic and self._preempt_for(share):
            self._reserved_start = self._now
            return self._now
        start, left = self._when_free(share, not_before if math.isfinite(not_before) else self._now)
        self._reserved_start, self._spare = max(start, not_before), left.minus(share)
        return self._reserved_start

    def _outlasts_reservation(self, seconds: float | None) -> bool:
        return seconds is None or self._now + seconds > self._reserved_start

    def _when_free(self, share: HostShare, not_before: float) -> tuple[float, HostShare]:
        """Returns when a share is free if no task starts from now on, and what is free then."""
        start, left = not_before, self._free
        for end, freed, *_ in sorted(self._holders, key=lambda holder: holder[:3]):
            if share.fits_into(left) and (end > start or math.isinf(end)):
                break
            start, left = max(start, end), left.plus(freed)
        return start, left

    def _preempt_for(self, share: HostShare) -> bool:
        """Chooses the opportunistic tasks whose preemption loses least; returns False if none or all of them
        do not suffice."""
        yielding = sorted(
            (0.0 if task.state == STOPPING else self._cost(task), task.id, task.state, holder_share)
            for _, holder_share, _, task in self._holders
            if task.need.opportunistic and task.need.cards  # a task without cards does not give way
        )
        left, gone = self._free, list[str]()
        for _, id, state, freed in yielding:
            if share.fits_into(left):
                break
            if (share.cores > left.cores and freed.cores) or (share.mb > left.mb and freed.mb):
                left = left.plus(freed)
                gone += [id] if state != STOPPING else []
        if not share.fits_into(left):
            return False
        self.preemptions, self._spare = tuple(sorted(gone)), left.minus(share)
        return True

    def _lack(self, share: HostShare) -> str:
        if share.cores > self._free.cores and share.cores:
            holders = [(holder.share.cores, holder.task) for holder in self._holders if holder.share.cores]
            return wait_reasons.cores(share.cores, self._free.cores, self._most.cores, holders=holders)
        holders = [(holder.share.mb, holder.task) for holder in self._holders if holder.share.mb]
        return wait_reasons.host_memory(share.mb, self._free.mb, self._most.mb, holders=holders)
