"""Supervises one session: starts its workers, enforces the limits, ends every process and records the
outcome.

A child of the guard (`roost.supervisor.guard`), which ends the run if this process is killed. Standard
library only, and little of it: every import delays the start of the run. Modules that are needed later are
imported after the fork of the worker, while that one loads its own.

macOS has neither a child subreaper nor a signal at the parent's death: both are best effort there.
"""

# Standard library only

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING

from roost.base.session_end import deadline_files
from roost.base.system import prctl
from roost.base.system.worker_protocol import OUT_OF_HOST_MEMORY, TAKEN_OVER
from roost.supervisor import signals, worker_process
from roost.supervisor.exit_status import PEER_FAILED, SessionOutcome
from roost.supervisor.output.output_file import open_output, write_line
from roost.supervisor.processes import session_processes
from roost.supervisor.processes.process_tree import kill_tree
from roost.supervisor.rank_processes import RankProcesses
from roost.supervisor.session_spec import SessionSpec

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker
    from roost.supervisor.session_record import SessionRecordFile
    from roost.supervisor.session_watch import SessionWatch

_RECORD_SECONDS = 5.0
"""How long another machine may take to record its end after all of its ranks have ended."""


class Supervisor:
    """One session, from the start of its workers (one, or one per rank) to the end of the last descendant.

    ::

        start:   adopt orphans, install signal handlers
                 start the workers
                 record "running"; report the pid to the operation
        watch:   until all workers have ended: wait for a signal, a report or the next tick
                     SIGTERM, SIGINT, SIGUSR1   ask the workers to stop; again: no effect, they are saving
                     SIGQUIT                    kill all processes
                     a rank has failed          the others get some seconds (`rank_processes`)
                     a tick                     the limits (`session_watch`); a session that was asked to stop
                                                and exceeds its grace time is killed
                 kill and reap all remaining processes
                 record the end

    Args:
        spec: The session.
        group: Its cgroup, if there is one.
        guard_pid: The parent process, as long as it lives.
        warm: The worker that a fork of this process can become.
    """

    def __init__(
        self, spec: SessionSpec, *, group: str | None, guard_pid: int, warm: WarmWorker | None = None
    ) -> None:
        self.spec, self._group, self._guard_pid = spec, group, guard_pid
        self._pending_signals: deque[int] = deque()
        self._wakeup_fd = -1
        self._output_fd = -1
        self._workers = RankProcesses(spec, warm)
        self._watch: SessionWatch
        self._kill_requested = self._tree_killed = False
        self._limit: SessionOutcome | None = None
        self._overdue: str | None = None
        self._kill_at: float | None = None
        self._record: SessionRecordFile
        self._started = time.monotonic()

    def start(self) -> None:
        """Starts the session and reports the pid. Raises OSError if the session cannot be started or
        recorded; then no process of it is left."""
        self._install_handlers()
        prctl.set_child_subreaper(True)
        try:
            self._start_workers()
            from roost.supervisor.session_record import SessionRecordFile, initial_fields

            fields = initial_fields(
                self.spec.session,
                worker_pid=self._workers.pids[0],
                guard_pid=self._guard_pid,
                group=self._group,
            )
            self._record = SessionRecordFile(self.spec.session_file, fields)
            if self._workers.ranks[0].worker.is_warm:
                self._record.fields.warm = True
            if (deadline := deadline_files.deadline_at_start(self.spec.env)) is not None:
                self._record.fields.deadline = deadline
            self._note_ranks()
            self._record.write_first(self.spec.request_file)
        except BaseException:
            session_processes.kill_all(self._group)
            self._remove_rendezvous()
            raise
        self._announce()

    def watch(self) -> int:
        """Watches the session until its end; returns the exit code."""
        from roost.supervisor.session_watch import SessionWatch

        self._watch = SessionWatch(self.spec, self._record, self._workers)
        self._check_guard()  # it may have ended before its death could be signalled
        self._wait()
        self._kill_remaining()
        return self._record_end()

    def _install_handlers(self) -> None:
        self._wakeup_fd, write_fd = os.pipe()
        for fd in (self._wakeup_fd, write_fd):
            os.set_blocking(fd, False)
        # The byte only wakes the poll; the handler keeps the signals, so a full pipe loses none.
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signals.install_handler(signals.HANDLED_SIGNALS, self._note_signal)
        prctl.set_parent_death_signal(signals.GUARD_DIED)
        signals.unblock_all()

    def _note_signal(self, signum: int, frame: FrameType | None) -> None:
        self._pending_signals.append(signum)

    def _start_workers(self) -> None:
        self._workers.start(self._group)
        self._output_fd = self._workers.output_fd
        signals.unblock_all()

    def _note_ranks(self) -> None:
        if self.spec.ranks:
            self._record.fields.ranks = [rank.as_json() for rank in self._workers.ranks]

    def _announce(self) -> None:
        self._redirect_output(self._output_fd)
        if self.spec.is_launcher:  # which prints nothing until all machines have joined
            self._write_line("waiting for the other machines")
        if self.spec.ready_fd is None:
            return
        try:
            os.write(self.spec.ready_fd, b"%d\n" % os.getpid())
        except BrokenPipeError:  # the starting process is gone; the run continues without it
            return
        finally:
            os.close(self.spec.ready_fd)

    def _redirect_output(self, fd: int) -> None:
        """Redirects stdout and stderr, which have no reader any more, into the output: the traceback of a
        defect of the supervisor appears there."""
        os.dup2(fd, 1, inheritable=False)
        os.dup2(fd, 2, inheritable=False)

    def _wait(self) -> None:
        poller, workers = select.poll(), self._workers
        reports = {rank.worker.report_fd: rank for rank in workers.ranks}
        for fd in (self._wakeup_fd, workers.stacks_fd, *reports):
            poller.register(fd, select.POLLIN)
        while not workers.have_ended:
            growths = self._watch.growth_fds  # more of them after a run has taken a while
            for fd in growths:
                poller.register(fd, select.POLLIN)
            for fd, _ in poller.poll(self._seconds_to_tick() * 1000):
                if fd == self._wakeup_fd:
                    os.read(fd, 4096)
                elif fd in growths:
                    self._watch.note_growth(fd)
                elif not (workers.read_report_of(reports[fd]) if fd in reports else os.read(fd, 1 << 16)):
                    poller.unregister(fd)  # all writers have closed it: it would wake the poll for ever
            self._handle_signals()
            if not workers.have_ended:
                self._tick(time.monotonic())

    def _seconds_to_tick(self) -> float:
        kills = (at for at in (self._kill_at, self._workers.kill_at) if at is not None)
        return max(0.0, min([self._watch.next_tick, *kills]) - time.monotonic())

    def _tick(self, now: float) -> None:
        if not self._tree_killed:
            self._workers.check_failures(now)
        if self._workers.kill_at is not None and now >= self._workers.kill_at:
            self._workers.kill_at = None
            self._kill_all()
            return
        limit = self._watch.tick(now)
        if limit is not None and self._limit is None:
            self._limit = limit
            # To save takes memory, too, which other tasks need; or the package belongs to another session
            # now.
            if limit.reason in (OUT_OF_HOST_MEMORY, TAKEN_OVER):
                self._kill_all()
                return
            self._kill_at = now + self.spec.limits.grace_seconds
            self._workers.request_stop()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            grace = f"{self.spec.limits.grace_seconds:g} s"
            self._overdue = f"it was killed because it had not ended {grace} after it was asked to stop"
            self._kill_all()

    def _handle_signals(self) -> None:
        while self._pending_signals:
            signum = self._pending_signals.popleft()
            if signum == signal.SIGCHLD:
                self._reap()
            elif signum == signals.GUARD_DIED:
                self._check_guard()
            elif self._workers.have_ended:
                self._record.fields.stop_asked = True  # too late for this session, not for the next
            elif signum == signals.KILL_SIGNAL:
                self._kill_requested = self._record.fields.stop_asked = True
                self._kill_all()
            else:
                self._request_stop()

    def _request_stop(self) -> None:
        if not self._record.fields.stop_asked:
            self._record.fields.stop_asked = True
            if self.spec.restart:
                self._record.write_if_possible()  # if the supervisor is killed now, the guard must know
        self._workers.request_stop()

    def _kill_all(self) -> list[int]:
        self._tree_killed = True
        spared = self._watch.spared_pids
        survivors = session_processes.kill_all(self._group, on_reaped=self._note_end, spared=spared)
        if sys.platform != "linux":
            for pid in self._workers.pids:
                kill_tree(pid, include_root=True)
        self._reap()
        return survivors

    def _check_guard(self) -> None:
        """Records the guard's death and continues: ending a run because its guard was killed would lose more
        than that kill did. Only if the supervisor is killed too are processes left behind, and
        `processes.abandoned_processes` finds those."""
        if os.getppid() == self._guard_pid or self._record.fields.guard_lost is not None:
            return
        self._record.fields.guard_lost = time.time()
        self._record.write_if_possible()
        self._write_line("the guard of this session was killed; the session continues without it")

    def _reap(self) -> None:
        """Reads the exit status of every child that has ended, adopted orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        rank = self._workers.note_end(pid, status)
        if rank is None:
            return
        seconds = time.monotonic() - self._started
        self._record.note_worker_end(rank.status if rank.number == 0 else None, seconds=seconds)
        if not self._tree_killed:
            self._workers.check_failures(time.monotonic())

    def _kill_remaining(self) -> None:
        """Kills all descendants. After this no process but guard and supervisor holds the lock."""
        from roost.supervisor.output.output_cap import shorten_session_output

        survivors = self._kill_all()
        session_processes.touch_leases(self.spec)
        self._remove_rendezvous()
        if self._is_taken_over:
            return
        if survivors:
            self._write_line(f"these processes could not be ended and may still write: {survivors}")
        elif shorten_session_output(self.spec, self._record, self._output_fd):
            self._output_fd = open_output(self.spec.output)
            self._redirect_output(self._output_fd)

    def _remove_rendezvous(self) -> None:
        if self.spec.ranks:
            from roost.supervisor import rendezvous

            rendezvous.remove_folder(self.spec.token)

    def _record_end(self) -> int:
        from roost.supervisor import session_restart

        end = self._workers.outcome(killed=self._kill_requested, limit=self._limit, overdue=self._overdue)
        if self.spec.is_launcher and end.reason == PEER_FAILED:
            from roost.supervisor import torchrun_ranks

            wait = self.spec.limits.peer_seconds + _RECORD_SECONDS
            end = torchrun_ranks.failure_on_other_machine(self._record, seconds=wait) or end
        cause = self._workers.cause_to_print(end)
        if cause is not None:
            self._write_line(cause)
        self._watch.finish()
        self._note_ranks()
        memory = self._workers.memory_peak()
        if memory is not None:
            self._record.fields.memory = memory
        joined = [worker_process.is_in_cgroup(rank.worker) for rank in self._workers.ranks]
        self._record.fields.scope = "cgroup" if all(joined) else "walk"
        is_error_printed = cause is not None or end.state == "failed"
        self._record.note_progress()
        self._handle_signals()  # a stop request that came meanwhile counts, too
        restarts = session_restart.plan_restart(
            self.spec, self._record, end, guard_pid=self._guard_pid, is_error_printed=is_error_printed
        )
        for line in self._record.write_end(end):
            self._write_line(line)
        if restarts is not None:
            self._write_line(restarts)
        return end.exit_code

    @property
    def _is_taken_over(self) -> bool:
        """Whether the output belongs to a session of another machine now."""
        return self._limit is not None and self._limit.reason == TAKEN_OVER

    def _write_line(self, text: str) -> None:
        if self._is_taken_over:
            return
        write_line(self._output_fd, text)
