"""The live attempts: their ends are written into the queue, and stop requests are passed on to them."""

from __future__ import annotations

import os
import resource
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from roost.base.errors import RoostError
from roost.base.text.byte_sizes import format_memory
from roost.lab.executors.executor import AttemptStatus, Executor
from roost.lab.memory.memory_use import ReadCapacities, with_card_capacities
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import ConcurrentChange, QueueStore
from roost.lab.queue.task import KILL, LIVE, PENDING, RUNNING, STARTING, STOPPING, Task
from roost.lab.queue.task_states import STOP_REQUESTS
from roost.lab.scheduling.attempt_outcome import state_after


class Attempts:
    """The live attempts of one queue. Their state is not saved: after a restart it is read from the packages
    again.

    Args:
        store: The queue.
        executor: The executor that has started them.
        capacities: Reads the memory of cards that tasks may have.
    """

    def __init__(self, store: QueueStore, executor: Executor, capacities: ReadCapacities) -> None:
        self._store, self._executor, self._capacities = store, executor, capacities
        self._fds: dict[str, int] = {}
        self._live: set[str] = set()
        """The ids from the last `refresh`, with those of tasks started since."""
        self._passed_on: dict[str, str] = {}
        self._troubles: dict[str, str] = {}

    @property
    def fds(self) -> dict[int, str]:
        """The tasks by descriptor; a descriptor becomes readable when the attempt has ended."""
        return {fd: id for id, fd in self._fds.items()}

    def refresh(self, ended: Iterable[str] | None = None) -> bool:
        """Reads the status of live tasks. Returns whether one of them has ended.

        Args:
            ended: Tasks whose descriptor is readable; in addition only tasks without one are read. None: all
                tasks are read.
        """
        polled = None if ended is None else set(ended)
        live = self._store.tasks(states=LIVE)
        self._live = {task.id for task in live}
        return self.refresh_tasks(
            task
            for task in live
            if polled is None or task.id in polled or task.id not in self._fds or task.stop_asked
        )

    def refresh_tasks(self, tasks: Iterable[Task]) -> bool:
        """Updates these live tasks in one transaction. Returns whether one of them has ended."""
        has_ended, unwatched = self._refresh_tasks(tasks)
        if unwatched:  # one that ended before it was watched causes no event
            has_ended |= self._refresh_tasks(unwatched)[0]
        return has_ended

    def _refresh_tasks(self, tasks: Iterable[Task]) -> tuple[bool, list[Task]]:
        """Returns whether a task has ended, and the live tasks without a descriptor."""
        given = list(tasks)
        self._live |= {task.id for task in given}
        found = [(task, status) for task in given if (status := self._read_status(task)) is not None]
        if not found:
            return False, []
        with self._store.transaction():
            known = [now for task, status in found if (now := self._update(task, status)) is not None]
        live = [task for task in known if task.state in LIVE]
        self._live -= {task.id for task in known if task.state not in LIVE}
        for task in live:
            self._follow(task)
        return len(live) < len(known), [task for task in live if task.id not in self._fds]

    @property
    def all_watched(self) -> bool:
        """Whether each live task has a descriptor, so that none needs to be polled."""
        return self._live <= self._fds.keys()

    def close(self) -> None:
        """Closes all descriptors."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _read_status(self, task: Task) -> AttemptStatus | None:
        try:
            status = self._executor.poll(task)
            return status._replace(memory=with_card_capacities(status.memory, self._capacities))
        except Exception as error:  # noqa: BLE001  - it reads files of other processes; the other tasks must continue
            self._unwatch(task)  # else an ended attempt would wake the daemon for ever
            self._note_unreadable(task, error)
            return None

    def _update(self, task: Task, status: AttemptStatus) -> Task | None:
        """Updates one task. Returns it as it is then; None if its status is not known now."""
        try:
            if status.state == STARTING:
                return None
            if status.state != RUNNING:
                return self._end(task, status)
            now: dict[str, Any] = {"session": status.session, "started": status.started}
            if task.state == STARTING:
                return self._store.transition(task, RUNNING, **now)
            if (task.session, task.started) != (
                status.session,
                status.started,
            ):  # it was restarted automatically
                return self._store.update(task, **now)
            return task
        except ConcurrentChange:  # a stop was requested meanwhile: the next refresh reads it
            return None
        except (RoostError, OSError):  # an error of the queue concerns all tasks
            raise
        except Exception as error:  # noqa: BLE001  - as in `_read_status`
            self._note_unreadable(task, error)
            return None

    def _follow(self, task: Task) -> None:
        try:
            self._watch(task)
            self._pass_on_stop(task)
        except (RoostError, OSError):  # as above
            raise
        except Exception as error:  # noqa: BLE001  - as above
            self._note_unreadable(task, error)

    def _watch(self, task: Task) -> None:
        fd = self._fds.get(task.id)
        if fd is not None and _has_ended(fd):  # only its guard was killed: another process can be watched
            os.close(self._fds.pop(task.id))
        if task.id not in self._fds and len(self._fds) < _max_watched():
            fd = None
            with suppress(OSError):  # no descriptor is free: the task is polled
                fd = self._executor.watch(task)
            if fd is not None:
                self._fds[task.id] = fd

    def _pass_on_stop(self, task: Task) -> None:
        if not task.stop_asked or self._passed_on.get(task.id) == task.stop_asked:
            return
        try:
            task = self._store.transition(task, STOPPING) if task.state == RUNNING else task
        except ConcurrentChange:  # as above
            return
        try:
            self._executor.request_stop(task, now=task.stop_asked == KILL)
        except RoostError as error:  # the next refresh requests it again
            self._note_trouble(task, f"it could not be requested {STOP_REQUESTS[task.stop_asked]}: {error}")
            return
        self._passed_on[task.id] = task.stop_asked

    def _note_unreadable(self, task: Task, error: Exception) -> None:
        self._note_trouble(task, f"its status cannot be read: {type(error).__name__}: {error}")

    def _note_trouble(self, task: Task, text: str) -> None:
        """Adds an event, once as long as the text is the same."""
        if self._troubles.get(task.id) != text:
            self._store.add_event("trouble", text, task=task.id)
            self._troubles[task.id] = text

    def _end(self, task: Task, status: AttemptStatus) -> Task:
        self._unwatch(task)
        self._passed_on.pop(task.id, None)
        to, changes = state_after(task, status)
        if to != PENDING:
            changes |= {"started": status.started, "ended": status.ended, "exit_code": status.exit_code}
        ended = self._store.transition(task, to, session=status.session, peak=_peak(task, status), **changes)
        if task.need.host_memory_mb is not None and status.host_peak_mb:
            used = f"it used {format_memory(status.host_peak_mb)} of host memory at most"
            self._store.add_event("measured", used, task=task.id)
        self._troubles.pop(task.id, None)
        return ended

    def _unwatch(self, task: Task) -> None:
        fd = self._fds.pop(task.id, None)
        if fd is not None:
            os.close(fd)


def _max_watched() -> int:
    """Returns half of the descriptors of a process; the others are for everything else. Further tasks are
    polled."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _has_ended(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _peak(task: Task, status: AttemptStatus) -> MemoryPeak | None:
    """Returns the peak to record for the prediction of similar runs."""
    memory = status.memory
    if memory is None or not memory.is_representative or not task.profile:
        return None
    at = status.ended if status.ended is not None else time.time()
    cards = task.need.cards
    return MemoryPeak(task.profile, task.scale, memory.peak_mb, memory.driver_mb, cards, memory.model, at)
