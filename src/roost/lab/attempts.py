"""The attempts that live: what becomes of them is written into the queue, what is asked of them is done."""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Iterable

from roost.base.errors import RoostError
from roost.lab.executors.protocol import Executor, Seen
from roost.lab.store import Raced, Store
from roost.lab.task import (
    CRASHED,
    EVICT,
    FAILED,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STARTING,
    STOP,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    Task,
)


class Attempts:
    """Those of one queue. Nothing here is needed after a restart: it is found again in the packages.

    Args:
        store: The queue.
        executor: What has started them.
    """

    def __init__(self, store: Store, executor: Executor) -> None:
        self._store, self._executor = store, executor
        self._fds: dict[str, int] = {}
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
        changed = False
        looked_at = None if ended is None else set(ended)
        for task in self._store.tasks(states=LIVE):
            if looked_at is None or task.id in looked_at or task.id not in self._fds or task.stop_asked:
                changed |= self._settled(task)
        return changed

    @property
    def are_watched(self) -> bool:
        """Whether each of them has a descriptor, so that none must be asked from time to time."""
        return all(task.id in self._fds for task in self._store.tasks(states=LIVE))

    def note_started(self, task: Task, session: int) -> None:
        """Writes down that a task runs that was just started."""
        try:
            self._settled(self._store.move(task, RUNNING, session=session))
        except Raced:  # somebody asked it to stop meanwhile: that is seen at the next look
            return

    def close(self) -> None:
        """Watches nothing any more."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _settled(self, task: Task) -> bool:
        """Brings one task up to date; gives whether it lives no more."""
        try:
            seen = self._executor.poll(task)
        except Exception as error:  # noqa: BLE001  - it reads what others have written; the rest must go on
            self._tell(task, error)
            return False
        try:
            if seen.state == STARTING:
                return False
            if seen.state != RUNNING:
                self._end(task, seen)
                return True
            now = {"session": seen.session, "started": seen.started}
            if task.state == STARTING:
                task = self._store.move(task, RUNNING, **now)
            elif (task.session, task.started) != (seen.session, seen.started):  # it was restarted by itself
                task = self._store.update(task, **now)
            self._watch(task)
            self._obey(task)
        except Raced:
            return False
        return False

    def _watch(self, task: Task) -> None:
        fd = self._fds.get(task.id)
        if fd is not None and _has_ended(fd):  # its guard alone was killed: there is something else to watch
            os.close(self._fds.pop(task.id))
        if task.id not in self._fds and len(self._fds) < _most_watched():
            fd = self._executor.watch(task)
            if fd is not None:
                self._fds[task.id] = fd

    def _obey(self, task: Task) -> None:
        if not task.stop_asked or self._asked.get(task.id) == task.stop_asked:
            return
        if task.state == RUNNING:
            task = self._store.move(task, STOPPING)
        try:
            self._executor.ask(task, now=task.stop_asked == KILL)
        except RoostError as error:
            self._store.note("not asked", str(error), task=task.id)
        self._asked[task.id] = task.stop_asked

    def _tell(self, task: Task, error: Exception) -> None:
        """Once, as long as it is the same."""
        text = f"what has become of it cannot be seen: {type(error).__name__}: {error}"
        if self._troubles.get(task.id) != text:
            self._store.note("trouble", text, task=task.id)
            self._troubles[task.id] = text

    def _end(self, task: Task, seen: Seen) -> None:
        fd = self._fds.pop(task.id, None)
        if fd is not None:
            os.close(fd)
        self._asked.pop(task.id, None)
        self._troubles.pop(task.id, None)
        to, changes = _after(task, seen)
        if to != PENDING:
            changes |= {"started": seen.started, "ended": seen.ended, "exit_code": seen.exit_code}
        self._store.move(task, to, session=seen.session, **changes)


def _most_watched() -> int:
    """Half of the descriptors that we may have are for all else. More tasks are asked from time to time."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _has_ended(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _after(task: Task, seen: Seen) -> tuple[str, dict[str, object]]:
    """The state that follows on the end of an attempt, and what else changes."""
    if task.stop_asked in (STOP, KILL):
        if seen.state == PENDING:
            return STOPPED, {"reason": "stopped before it began"}
        return seen.state, {"reason": seen.reason}
    if seen.state == PENDING:
        return PENDING, {"reason": "the lab was interrupted before it began"}
    if seen.state == STOPPED and task.stop_asked == EVICT:
        return PENDING, {"reason": "it made room for others"}
    if seen.is_accident:
        return PENDING, {"reason": f"attempt {task.attempt}: {seen.reason}"}
    if seen.state in (FAILED, CRASHED) and task.retries:
        return PENDING, {
            "reason": f"attempt {task.attempt} {seen.state}: {seen.reason}",
            "retries": task.retries - 1,
        }
    return seen.state, {"reason": "" if seen.state == SUCCEEDED else seen.reason}
