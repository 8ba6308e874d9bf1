"""The executor of this machine: each task runs under its own supervisor."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from roost.base import safe_read
from roost.base.errors import NotFound, Refused, RoostError
from roost.base.session_end import platform_limit
from roost.base.system import cpu_cores, process_identity
from roost.devices import lease
from roost.devices.card import Card
from roost.devices.lease import LeaseHolder
from roost.lab.executors.executor import INTERRUPTED_START, NEVER_STARTED, AttemptStatus
from roost.lab.memory import memory_use
from roost.lab.queue import task_file
from roost.lab.queue.task import CRASHED, ENDED, FAILED, RUNNING, STARTING, SUCCEEDED, Task
from roost.lab.sessions import session_control, stuck_attempts
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_plan import SessionPlan, add_session
from roost.package import session_folder, sessions
from roost.package.owner import other_owner, takeover
from roost.package.owner.other_owner import OtherOwner, OwnerLooks
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.sessions import ProcessIdentity, Session, unix_seconds
from roost.supervisor import guard_start
from roost.supervisor.exit_status import SUPERVISOR_KILLED
from roost.supervisor.forkserver.template_client import ForkedGuard
from roost.supervisor.forkserver.template_pool import TemplatePool


class LocalExecutor:
    """An `Executor` of this machine. The session folder of a task holds the truth about it: the process that
    has its lock is its newest session, or is about to be.

    Args:
        templates: The template processes from which guards and workers are forked, if possible.
    """

    def __init__(self, templates: TemplatePool | None = None) -> None:
        self._templates = templates
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._last_running: dict[str, Session] = {}
        self._cores: dict[str, Sequence[int]] = {}
        """The cores of each live task that requested a number of them."""
        self._owner_looks = OwnerLooks()

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        """Implements `Executor.start`: adds a session to the task's folder, with a supervisor that outlives
        this process. An attempt that has a session already is not started again."""
        folder = _open_folder(task)
        if not task_file.exists(task):
            fix = "put its own package back, or submit the task again"
            raise NotFound(
                "another package is at the path of this task's package", received=task.package, fix=fix
            )
        if _has_started(folder, task):
            return lambda: None
        plan, deadline = _with_platform_limit(msgspec.convert(task.plan, SessionPlan), time.time())
        end_abandoned(folder)
        if safe_read.is_locked(
            folder.path / sessions.LOCK_NAME
        ):  # `lock` would wait for it, as would all other tasks
            raise Refused(
                "another process writes to its package", where=folder.path, fix="wait: it starts after that"
            )
        lock_fd = folder.lock()
        held = None
        try:
            gone = self._gone_owner(folder)
            # The scheduler has left the memory that must stay free; other users do the same when they choose
            # cards.
            held = (
                lease.take(cards, task.reserved_mb, LeaseHolder.this_process(task.id, task.package))
                if cards
                else None
            )
            spec = add_session(
                folder,
                plan,
                cards=[card.id for card in cards],
                leases=held,
                core_ids=(core_ids := self._choose_cores(task)),
                deadline=deadline,
                is_queued=True,
                added={
                    **_continued_request(folder, task),
                    **({} if gone is None else {"taken_over": takeover.gone_line(gone)}),
                    "task": task.id,
                    "attempt": task.attempt,
                    "cards": [card.id for card in cards],
                    "reserved_mb": task.reserved_mb,
                    **memory_use.card_fields(cards),
                },
            )
            guard_template = self._templates.guard_template if self._templates is not None else None
            coming = guard_start.spawn_guard(spec, lock_fd=lock_fd, guard_template=guard_template)
            self._note_cores(task, core_ids)  # before its processes are bound: the next one starts at once
        finally:
            os.close(lock_fd)
            if held is not None:
                held.close()

        def finish() -> None:
            try:
                coming.wait_until_recorded()
            except BaseException:
                self._cores.pop(task.id, None)
                raise
            if isinstance(coming.guard, ForkedGuard):
                coming.guard.close()
            else:
                self._guards[task.id] = coming.guard
            if self._templates is not None:
                self._templates.prepare(spec)

        return finish

    def _gone_owner(self, folder: SessionFolder) -> OtherOwner | None:
        """Returns the session of another machine that owned the package and is gone; None if there is none.

        Raises:
            Refused: It still gives signs of life, or was not looked at long enough.
        """
        other = other_owner.find_other(folder.path) if folder.is_package else None
        if other is None:
            self._owner_looks.forget(folder.path)
            return None
        if self._owner_looks.seconds_until_gone(other) > 0:
            raise Refused(
                f"{other.name} gives no sign of life",
                where=folder.path,
                fix="wait: it starts if a second look finds none either",
            )
        return other

    def poll(self, task: Task) -> AttemptStatus:
        """Implements `Executor.poll`, by the records of its sessions."""
        status = self._read_status(task)
        if status.state not in (RUNNING, STARTING):
            self._cores.pop(task.id, None)
        self._reap()
        return status

    def _read_status(self, task: Task) -> AttemptStatus:
        try:
            folder = _open_folder(task)
        except NotFound:
            return self._without_package(task, "its package was removed, and with it the record of its end")
        found = self._session(folder, task)
        if found is None and not task_file.exists(task):
            return self._without_package(task, "another package is at the path of its package")
        if found is None or found.record is None:
            if safe_read.is_locked(folder.path / sessions.LOCK_NAME):  # its supervisor is starting
                return AttemptStatus(STARTING, found.number if found else None)
            found = self._session(folder, task)  # or it has started and ended meanwhile
            if found is None:
                return NEVER_STARTED
            if found.record is None:
                lost_in_a_row = memory_use.count_lost_in_a_row(folder, task.id)
                return INTERRUPTED_START._replace(session=found.number, lost_in_a_row=lost_in_a_row)
        status = _attempt_status(found, guard_is_alive=self._has_live_guard(task) or found.guard_is_alive)
        if status.state == RUNNING:
            self._last_running[task.id] = found
            self._note_cores(task, found.request.core_ids)
        else:
            self._last_running.pop(task.id, None)
        if status.is_lost:
            end_abandoned(folder)
        if status.state in ENDED:
            lost_in_a_row = (
                0 if status.state == SUCCEEDED else memory_use.count_lost_in_a_row(folder, task.id)
            )
            stuck = stuck_attempts.stuck_text(folder, task.kind) if task.retries else None
            return status._replace(
                lost_in_a_row=lost_in_a_row, stuck=stuck or "", memory=memory_use.session_memory_use(found)
            )
        return status

    def _note_cores(self, task: Task, core_ids: Sequence[int]) -> None:
        if task.need.cores:
            self._cores[task.id] = core_ids

    def _choose_cores(self, task: Task) -> tuple[int, ...]:
        """Returns the cores to which a task is bound: as many as it requests, which no other process has
        alone as far as there are any; else those that no task of this queue has alone. Empty for all."""
        if task.need.cores:
            taken = [*self._cores.values(), *cpu_cores.bound_cores()]
            return cpu_cores.choose_cores(task.need.cores, taken=taken)
        usable = cpu_cores.usable_core_ids()
        rest = set(usable).difference(*self._cores.values())
        return tuple(sorted(rest)) if len(rest) < len(usable) else ()

    def watch(self, task: Task) -> int | None:
        """Implements `Executor.watch`, by the guard, else the supervisor."""
        found = self._running(task)
        if found is None or not hasattr(os, "pidfd_open"):
            return None
        for process in (found.guard, found.supervisor):  # a supervisor continues if its guard is killed
            fd = _open_process(process) if process is not None else None
            if fd is not None:
                return fd
        return None

    def request_stop(self, task: Task, *, now: bool) -> None:
        """Implements `Executor.request_stop`, by a signal."""
        found = self._running(task)
        if found is None:
            return
        if found.lock is not None and not found.lock.exists():
            # The package was moved or removed, so no process has a lock at its path open. When the record was
            # read these were its processes.
            found = replace(found, lock=None)
        session_control.request_stop(found, now=now)

    def _running(self, task: Task) -> Session | None:
        """Returns the session as last read, if it ran then; the package may be removed by now."""
        if task.id not in self._last_running:
            self.poll(task)
        return self._last_running.get(task.id)

    def _without_package(self, task: Task, reason: str) -> AttemptStatus:
        """Returns the status of an attempt whose package was removed: it runs until it writes to the
        package."""
        found = self._last_running.get(task.id)
        if found is not None and found.may_have_watchers:
            return AttemptStatus(RUNNING, found.number, started=task.started)
        self._last_running.pop(task.id, None)
        return AttemptStatus(FAILED, task.session, reason=reason, started=task.started, ended=time.time())

    def _has_live_guard(self, task: Task) -> bool:
        """Whether this process has started the guard of the task and cannot reap it yet: one that is ending
        releases the package's lock a moment before."""
        guard = self._guards.get(task.id)
        return guard is not None and guard.poll() is None

    def _reap(self) -> None:
        """Reaps the guards that this process has started; the results of their tasks are in the packages."""
        self._guards = {id: guard for id, guard in self._guards.items() if guard.poll() is None}

    def _session(self, folder: SessionFolder, task: Task) -> Session | None:
        """Returns the session of the newest attempt, or the one that restarted automatically after it."""
        for found in reversed(_sessions(folder)):
            if found.request.task == task.id:
                return found if found.request.attempt == task.attempt else None
        return None


def _open_folder(task: Task) -> SessionFolder:
    """Opens the folder of the task's sessions: the package, or one inside it.

    Raises:
        NotFound: It does not exist.
    """
    if task.traits.locks_package:
        return PackageFolder.open(task.package)
    return session_folder.open_folder(task.folder, Path(task.package))


def _sessions(folder: SessionFolder) -> list[Session]:
    """Returns all sessions of a folder; one that is missing is an error here, because a task without sessions
    would count as never started."""
    folder.session_files.stat()
    return folder.sessions()


def _has_started(folder: SessionFolder, task: Task) -> bool:
    """Whether another daemon has started this attempt: it had the task in a queue that was lost. Such an
    attempt is read like any other.

    Raises:
        RoostError: The other daemon has started a later attempt.
    """
    own = [one for one in _sessions(folder) if one.request.task == task.id]
    if not own or own[-1].record is None:
        return False
    attempt = own[-1].request.attempt
    if isinstance(attempt, int) and attempt > task.attempt:
        what = f"another queue knows this task, and has started its attempt {attempt}"
        again = f"continue it with `roost submit continue {shlex.quote(task.package)}`"
        fix = again if task.traits.locks_package else "submit it again"
        raise RoostError(what, where=folder.path, fix=fix)
    return bool(attempt == task.attempt)


def _attempt_status(found: Session, *, guard_is_alive: bool) -> AttemptStatus:
    record = found.recorded
    # The guard ends last: until then the package is locked and the cards are leased.
    if found.state == "running" or guard_is_alive:
        return AttemptStatus(RUNNING, found.number, started=unix_seconds(record.started))
    unrecorded = record.state == "running"  # no process was left to record its end
    ended, code = unix_seconds(record.ended), record.exit_code
    is_known = found.state in ENDED
    return AttemptStatus(
        found.state if is_known else CRASHED,
        found.number,
        reason=str((found.error or record.reason or "") if is_known else "its record is damaged"),
        started=unix_seconds(record.started),
        ended=ended if ended is not None else time.time(),
        exit_code=code if type(code) is int and 0 <= code <= 255 else None,
        is_lost=unrecorded or record.reason == SUPERVISOR_KILLED,
        host_peak_mb=record.peak_tree_memory_mb,
    )


def _open_process(process: ProcessIdentity) -> int | None:
    try:
        fd = os.pidfd_open(process.pid)
    except (OSError, OverflowError):
        return None
    try:
        if process_identity.is_alive(*process):
            kept, fd = fd, -1
            return kept
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _continued_request(folder: SessionFolder, task: Task) -> dict[str, Any]:
    """Returns the request of an attempt at a training after an effective one, whose overrides and checkpoint
    are in effect already."""
    if not folder.is_package:
        return {}
    records = folder.path / "records"
    has_begun = any(one.is_effective(records) for one in _sessions(folder) if one.request.task == task.id)
    return {"overrides": [], "checkpoint": None} if has_begun else {}


def _with_platform_limit(plan: SessionPlan, now: float) -> tuple[SessionPlan, float | None]:
    """Returns the plan with the seconds after which its supervisor stops the session, and its deadline: the
    time limit that was requested, else the end of the session that the platform sets."""
    seconds = plan.limits.get("wall_seconds")
    length = plan.own_env.get(platform_limit.LENGTH_VARIABLE)
    limit = platform_limit.platform_limit(length, {**plan.env, **plan.own_env}, now=now)
    at = None if seconds is None else now + seconds
    if limit.at is None or limit.at <= now or (limit.is_guess and at is not None):
        return plan, at
    at = limit.at if at is None else min(at, limit.at)
    limits = {**plan.limits, "wall_seconds": at - now}
    return msgspec.structs.replace(plan, limits=limits), at
