"""Tasks on this machine, each under a supervisor of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from roost.base import safe_read
from roost.base.errors import NotFound, Refused, RoostError
from roost.base.system import process_identity
from roost.devices import lease
from roost.devices.card import Card
from roost.devices.lease import LeaseHolder
from roost.lab.executors.executor import NEVER_STARTED, AttemptStatus
from roost.lab.memory import memory_use
from roost.lab.queue import task_file
from roost.lab.queue.task import CRASHED, ENDED, FAILED, RUNNING, STARTING, SUCCEEDED, Task
from roost.lab.sessions import session_control, session_start
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_plan import Plan
from roost.package.package import PackageFolder
from roost.package.sessions import Session, unix_seconds
from roost.supervisor import guard_start
from roost.supervisor.forkserver.forked_guard import ForkedGuard, GuardTemplate
from roost.supervisor.forkserver.warm_templates import WarmTemplates

_ATTEMPT = "attempt"


class LocalExecutor:
    """An `Executor` of this machine. The truth about a task is its package: whoever holds the package's lock
    is, or is about to be, its newest session.

    Args:
        template: What guards are forked from, if they can be.
        warm: What they are forked from together with their workers; is told which were started.
    """

    def __init__(self, template: GuardTemplate | None = None, warm: WarmTemplates | None = None) -> None:
        self._template, self._warm = template, warm
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[str, Session] = {}

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        """As `Executor.start`: adds a session to the package, and gives it a supervisor that outlives us. An
        attempt whose session stands already is not started again."""
        package = PackageFolder.open(task.package)
        if not task_file.stands(task):
            fix = "put its own back, or submit it again"
            raise NotFound("another package stands in the place of its own", received=task.package, fix=fix)
        if _has_started(package, task):
            return lambda: None
        plan = msgspec.convert(task.plan, Plan)
        end_abandoned(package)
        if safe_read.is_locked(
            package.path / "lock"
        ):  # `lock` would wait for it, and with us every other task
            raise Refused("somebody writes to its package", where=package.path, fix="it starts after that")
        lock_fd = package.lock()
        held = None
        try:
            # Room that is nobody's was left by whoever chose the cards: others see it as they look.
            held = (
                lease.take(cards, task.reserved_mb, LeaseHolder.this_process(task.id, task.package))
                if cards
                else None
            )
            spec = session_start.add(
                package,
                plan,
                cards=[card.id for card in cards],
                leases=held,
                deadline=_deadline(plan),
                added={
                    **_continued_request(package, task),
                    "task": task.id,
                    _ATTEMPT: task.attempt,
                    "cards": [card.id for card in cards],
                    "reserved_mb": task.reserved_mb,
                    **memory_use.card_fields(cards),
                },
            )
            coming = guard_start.spawn_guard(spec, lock_fd=lock_fd, template=self._template)
        finally:
            os.close(lock_fd)
            if held is not None:
                held.close()

        def finish() -> None:
            coming.wait_until_recorded()
            if isinstance(coming.guard, ForkedGuard):
                coming.guard.close()
            else:
                self._guards[task.id] = coming.guard
            if self._warm is not None:
                self._warm.ensure_template(spec)  # for the next one

        return finish

    def poll(self, task: Task) -> AttemptStatus:
        """As `Executor.poll`, by the records of the package."""
        seen = self._look(task)
        self._reap(task)
        return seen

    def _look(self, task: Task) -> AttemptStatus:
        try:
            package = PackageFolder.open(task.package)
        except NotFound:
            return self._without_package(task, "its package is gone, and with it how it ended")
        found = self._session(package, task)
        if found is None and not task_file.stands(task):
            return self._without_package(task, "another package stands in the place of its own")
        if found is None or found.record is None:
            if safe_read.is_locked(package.path / "lock"):  # its supervisor is coming up
                return AttemptStatus(STARTING, found.number if found else None)
            found = self._session(package, task)  # or it has come and gone meanwhile
            if found is None or found.record is None:
                return NEVER_STARTED
        seen = _attempt_status(found)
        if seen.state == RUNNING:
            self._seen[task.id] = found
        else:
            self._seen.pop(task.id, None)
        if seen.is_accident:
            end_abandoned(package)
        if seen.state in ENDED:
            in_vain = 0 if seen.state == SUCCEEDED else memory_use.count_lost_in_a_row(package, task.id)
            return seen._replace(in_vain=in_vain, taken=memory_use.session_memory_use(found))
        return seen

    def watch(self, task: Task) -> int | None:
        """As `Executor.watch`: of the guard, else of the supervisor."""
        found = self._running(task)
        record = found.record if found is not None else None
        if not record or not hasattr(os, "pidfd_open"):
            return None
        boot_id = str(record.get("boot_id"))
        for who in ("guard_", ""):  # a supervisor goes on whose guard was killed
            fd = _open_process(record.get(f"{who}pid"), record.get(f"{who}start_ticks"), boot_id)
            if fd is not None:
                return fd
        return None

    def ask(self, task: Task, *, now: bool) -> None:
        """As `Executor.ask`, by a signal."""
        found = self._running(task)
        if found is not None:
            session_control.ask(found, now=now)

    def _running(self, task: Task) -> Session | None:
        """Its session as it was seen last, if it ran then; its package may be gone by now."""
        if task.id not in self._seen:
            self.poll(task)
        return self._seen.get(task.id)

    def _without_package(self, task: Task, reason: str) -> AttemptStatus:
        """What is known of an attempt whose package was removed: it goes on until it wants to write."""
        found = self._seen.get(task.id)
        if found is not None and found.guard_is_alive:
            return AttemptStatus(RUNNING, found.number, started=task.started)
        self._seen.pop(task.id, None)
        return AttemptStatus(FAILED, task.session, reason=reason, started=task.started, ended=time.time())

    def _reap(self, task: Task) -> None:
        """Takes the exit code of a guard that we have started: what became of the task says its package."""
        guard = self._guards.get(task.id)
        if guard is not None and guard.poll() is not None:
            del self._guards[task.id]

    def _session(self, package: PackageFolder, task: Task) -> Session | None:
        """That of the newest attempt, or what was begun by itself after it."""
        for found in reversed(package.sessions()):
            if found.request.get("task") == task.id:
                return found if found.request.get(_ATTEMPT) == task.attempt else None
        return None


def _has_started(package: PackageFolder, task: Task) -> bool:
    """Whether another daemon has begun this attempt: it had this task in a queue that was lost. It is seen
    like any other.

    Raises:
        RoostError: It has begun a later one.
    """
    own = [one for one in package.sessions() if one.request.get("task") == task.id]
    if not own or own[-1].record is None:
        return False
    attempt = own[-1].request.get(_ATTEMPT)
    if isinstance(attempt, int) and attempt > task.attempt:
        what = f"another queue knows this task, and has started its attempt {attempt}"
        fix = f"go on with `roost submit continue {shlex.quote(str(package.path))}`"
        raise RoostError(what, where=package.path, fix=fix)
    return bool(attempt == task.attempt)


def _attempt_status(found: Session) -> AttemptStatus:
    record: Mapping[str, Any] = found.record or {}
    # The guard ends last: until then the package is locked and the cards are taken.
    if found.state == "running" or found.guard_is_alive:
        return AttemptStatus(RUNNING, found.number, started=unix_seconds(record.get("started")))
    unrecorded = record.get("state") == "running"  # nobody was left who could have written down its end
    ended, code = unix_seconds(record.get("ended")), record.get("exit_code")
    is_known = found.state in ENDED
    return AttemptStatus(
        found.state if is_known else CRASHED,
        found.number,
        reason=str((found.error or record.get("reason") or "") if is_known else "its record is damaged"),
        started=unix_seconds(record.get("started")),
        ended=ended if ended is not None else time.time(),
        exit_code=code if type(code) is int and 0 <= code <= 255 else None,
        is_accident=unrecorded,
    )


def _open_process(pid: object, start_ticks: int | None, boot_id: str) -> int | None:
    if not isinstance(pid, int):
        return None
    try:
        fd = os.pidfd_open(pid)
    except (OSError, OverflowError):
        return None
    try:
        if process_identity.is_alive(pid, start_ticks, boot_id):
            kept, fd = fd, -1
            return kept
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _continued_request(package: PackageFolder, task: Task) -> dict[str, Any]:
    """What was asked of an attempt that counts holds for all that follow."""
    records = package.path / "records"
    has_begun = any(
        one.is_effective(records) for one in package.sessions() if one.request.get("task") == task.id
    )
    return {"overrides": [], "checkpoint": None} if has_begun else {}


def _deadline(plan: Plan) -> float | None:
    seconds = plan.limits.get("wall_seconds")
    return time.time() + seconds if seconds is not None else None
