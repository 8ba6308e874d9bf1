"""The attempts that live: what becomes of them is written into the queue, what is asked of them is done."""

from __future__ import annotations

import os
import resource
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from roost.base.errors import RoostError
from roost.lab.executors.executor import AttemptStatus, Executor
from roost.lab.memory.memory_use import ReadCapacities, with_card_capacities
from roost.lab.queue.history import Peak
from roost.lab.queue.queue_store import Raced, Store
from roost.lab.queue.task import KILL, LIVE, PENDING, RUNNING, STARTING, STOPPING, Task
from roost.lab.queue.task_states import ASKED
from roost.lab.scheduling.attempt_outcome import state_after


class Attempts:
    """Those of one queue. Nothing here is needed after a restart: it is found again in the packages.

    Args:
        store: The queue.
        executor: What has started them.
        capacities: Of the cards.
    """

    def __init__(self, store: Store, executor: Executor, capacities: ReadCapacities) -> None:
        self._store, self._executor, self._capacities = store, executor, capacities
        self._fds: dict[str, int] = {}
        self._live: set[str] = set()
        """As `settle` has read them, with those that were started since."""
        self._asked: dict[str, str] = {}
        self._troubles: dict[str, str] = {}

    @property
    def fds(self) -> dict[int, str]:
        """By descriptor, which becomes readable when it has ended: each task that has one."""
        return {fd: id for id, fd in self._fds.items()}

    def settle(self, ended: Iterable[str] | None = None) -> bool:
        """Looks what has become of the live tasks; gives whether one of them lives no more.

        Args:
            ended: Those whose descriptor said so, beside which only those without one are looked at; all
                when None.
        """
        looked_at = None if ended is None else set(ended)
        live = self._store.tasks(states=LIVE)
        self._live = {task.id for task in live}
        return self.look_at(
            task
            for task in live
            if looked_at is None or task.id in looked_at or task.id not in self._fds or task.stop_asked
        )

    def look_at(self, tasks: Iterable[Task]) -> bool:
        """Brings these live tasks up to date, in one transaction; gives whether one of them lives no more."""
        has_ended, unwatched = self._look_at(tasks)
        if unwatched:  # one that ended before it could be watched tells nobody
            has_ended |= self._look_at(unwatched)[0]
        return has_ended

    def _look_at(self, tasks: Iterable[Task]) -> tuple[bool, list[Task]]:
        """Gives whether one lives no more, and those that do and have no descriptor."""
        given = list(tasks)
        self._live |= {task.id for task in given}
        found = [(task, seen) for task in given if (seen := self._seen(task)) is not None]
        if not found:
            return False, []
        with self._store.together():
            known = [now for task, seen in found if (now := self._settled(task, seen)) is not None]
        live = [task for task in known if task.state in LIVE]
        self._live -= {task.id for task in known if task.state not in LIVE}
        for task in live:
            self._see_to(task)
        return len(live) < len(known), [task for task in live if task.id not in self._fds]

    @property
    def are_watched(self) -> bool:
        """Whether each of them has a descriptor, so that none must be asked from time to time; of those that
        `settle` has found, and that were looked at since."""
        return self._live <= self._fds.keys()

    def close(self) -> None:
        """Watches nothing any more."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _seen(self, task: Task) -> AttemptStatus | None:
        try:
            seen = self._executor.poll(task)
            return seen._replace(taken=with_card_capacities(seen.taken, self._capacities))
        except Exception as error:  # noqa: BLE001  - it reads what others have written; the rest must go on
            self._unwatch(task)  # else what has ended would wake us for ever
            self._tell_unseen(task, error)
            return None

    def _settled(self, task: Task, seen: AttemptStatus) -> Task | None:
        """Brings one task up to date; gives it as it is then, None if nothing is known of it now."""
        try:
            if seen.state == STARTING:
                return None
            if seen.state != RUNNING:
                return self._end(task, seen)
            now: dict[str, Any] = {"session": seen.session, "started": seen.started}
            if task.state == STARTING:
                return self._store.move(task, RUNNING, **now)
            if (task.session, task.started) != (seen.session, seen.started):  # it was restarted by itself
                return self._store.update(task, **now)
            return task
        except Raced:  # somebody has asked it to stop meanwhile: that is seen at the next look
            return None
        except (RoostError, OSError):  # of the queue, which is that of all
            raise
        except Exception as error:  # noqa: BLE001  - as in `_seen`
            self._tell_unseen(task, error)
            return None

    def _see_to(self, task: Task) -> None:
        try:
            self._watch(task)
            self._obey(task)
        except (RoostError, OSError):  # as above
            raise
        except Exception as error:  # noqa: BLE001  - as above
            self._tell_unseen(task, error)

    def _watch(self, task: Task) -> None:
        fd = self._fds.get(task.id)
        if fd is not None and _has_ended(fd):  # its guard alone was killed: there is something else to watch
            os.close(self._fds.pop(task.id))
        if task.id not in self._fds and len(self._fds) < _max_watched():
            fd = None
            with suppress(OSError):  # no descriptor is left: it is asked from time to time
                fd = self._executor.watch(task)
            if fd is not None:
                self._fds[task.id] = fd

    def _obey(self, task: Task) -> None:
        if not task.stop_asked or self._asked.get(task.id) == task.stop_asked:
            return
        try:
            task = self._store.move(task, STOPPING) if task.state == RUNNING else task
        except Raced:  # as above
            return
        try:
            self._executor.ask(task, now=task.stop_asked == KILL)
        except RoostError as error:  # it is asked again at the next look
            self._tell(task, f"it could not be asked {ASKED[task.stop_asked]}: {error}")
            return
        self._asked[task.id] = task.stop_asked

    def _tell_unseen(self, task: Task, error: Exception) -> None:
        self._tell(task, f"what has become of it cannot be seen: {type(error).__name__}: {error}")

    def _tell(self, task: Task, text: str) -> None:
        """Once, as long as it is the same."""
        if self._troubles.get(task.id) != text:
            self._store.note("trouble", text, task=task.id)
            self._troubles[task.id] = text

    def _end(self, task: Task, seen: AttemptStatus) -> Task:
        self._unwatch(task)
        self._asked.pop(task.id, None)
        to, changes = state_after(task, seen)
        if to != PENDING:
            changes |= {"started": seen.started, "ended": seen.ended, "exit_code": seen.exit_code}
        ended = self._store.move(task, to, session=seen.session, measured=_peak(task, seen), **changes)
        self._troubles.pop(task.id, None)
        return ended

    def _unwatch(self, task: Task) -> None:
        fd = self._fds.pop(task.id, None)
        if fd is not None:
            os.close(fd)


def _max_watched() -> int:
    """Half of the descriptors that we may have are for all else. More tasks are asked from time to time."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _has_ended(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _peak(task: Task, seen: AttemptStatus) -> Peak | None:
    """What is to be remembered of its memory for the next runs like it."""
    taken = seen.taken
    if taken is None or not taken.is_whole or not task.profile:
        return None
    at = seen.ended if seen.ended is not None else time.time()
    cards = task.need.cards
    return Peak(task.profile, task.scale, taken.peak_mb, taken.driver_mb, cards, taken.model, at)
