"""Watches over one session: starts its workers, enforces limits, leaves nobody behind, writes down the end.

A child of the guard (`lab.guard`), which ends the run should this process be killed. Standard library only,
and little of it: every import is paid before the run begins. What is needed later is imported after the
worker was forked, while that one loads itself.

On macOS there is neither a child subreaper nor a signal at the parent's death: there both are best effort.
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

from roost.supervisor import session_record, signals, worker_process
from roost.supervisor.exit_status import PEER_FAILED, SessionOutcome
from roost.supervisor.output.output_file import open_output, write_line
from roost.supervisor.processes import session_processes
from roost.supervisor.processes.process_tree import kill_tree
from roost.supervisor.rank_processes import RankProcesses
from roost.supervisor.session_spec import SessionSpec

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker
    from roost.supervisor.session_watch import SessionWatch

_RECORD_SECONDS = 5.0
"""What another machine may need to write down its end, once all of its ranks have ended."""


class Supervisor:
    """One session, from the start of its workers (one, or one a rank) to the last of their descendants.

    ::

        start:   adopt orphans, listen to signals
                 start the workers
                 record "running"; tell the operation
        watch:   until all workers have ended: wait for a signal, a word of theirs, the next tick
                     SIGTERM, SIGINT, SIGUSR1   ask them to stop; again: nothing more, they are saving
                     SIGQUIT                    kill everything
                     a rank has failed          the others have some seconds (`lab.team`)
                     a tick                     the limits (`lab.watch`); one that was asked and overstays
                                                its grace is killed
                 kill and reap whatever they left behind
                 record the end

    Args:
        spec: The session.
        group: Its cgroup, if there is one.
        guard_pid: Our parent, as long as it lives.
        warm: The worker that a fork of this process can become.
    """

    def __init__(self, spec: SessionSpec, *, group: str | None, guard_pid: int, warm: WarmWorker | None = None) -> None:
        self.spec, self._group, self._guard_pid = spec, group, guard_pid
        self._arrived: deque[int] = deque()
        self._wakeup_fd = -1
        self._output_fd = -1
        self._team = RankProcesses(spec, warm)
        self._watch: SessionWatch
        self._killed = self._are_killed = False
        self._limit: SessionOutcome | None = None
        self._overdue: str | None = None
        self._kill_at: float | None = None
        self._record = session_record.SessionRecord(spec.session_file, {})
        self._started = time.monotonic()

    def start(self) -> None:
        """Starts the session and says so. Raises OSError if it cannot be started or recorded; then nothing of
        it is left."""
        self._listen()
        session_processes.adopt_orphans()
        try:
            self._start_workers()
            self._record.fields = session_record.initial_fields(
                self.spec.session,
                worker_pid=self._team.pids[0],
                guard_pid=self._guard_pid,
                group=self._group,
            )
            if self._team.ranks[0].worker.is_warm:
                self._record.fields["warm"] = True
            self._note_ranks()
            self._record.write_first(self.spec.request_file)
        except BaseException:
            session_processes.kill_all(self._group)
            self._leave_meeting()
            raise
        self._announce()

    def watch(self) -> int:
        """Sees the session through; gives the exit code."""
        from roost.supervisor.session_watch import SessionWatch

        self._watch = SessionWatch(self.spec, self._record, self._team)
        self._note_guards_death()  # it may have died before its death could be signalled
        self._wait()
        self._end_leftovers()
        return self._record_end()

    def _listen(self) -> None:
        self._wakeup_fd, write_fd = os.pipe()
        for fd in (self._wakeup_fd, write_fd):
            os.set_blocking(fd, False)
        # The byte only wakes the poll; the handler keeps what came, so a full pipe loses nothing.
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signals.install_handler(signals.HANDLED_SIGNALS, self._note_signal)
        session_processes.set_parent_death_signal(signals.GUARD_DIED)
        signals.unblock_all()

    def _note_signal(self, signum: int, frame: FrameType | None) -> None:
        self._arrived.append(signum)

    def _start_workers(self) -> None:
        self._team.start(self._group)
        self._output_fd = self._team.output_fd
        signals.unblock_all()

    def _note_ranks(self) -> None:
        if self.spec.ranks:
            self._record.fields["ranks"] = [rank.as_json() for rank in self._team.ranks]

    def _announce(self) -> None:
        self._take_output(self._output_fd)
        if self.spec.is_launcher:  # which says nothing until all machines have come
            self._say("waiting for the other machines")
        if self.spec.ready_fd is None:
            return
        try:
            os.write(self.spec.ready_fd, b"%d\n" % os.getpid())
        except BrokenPipeError:  # whoever started us is gone; the run goes on all the same
            return
        finally:
            os.close(self.spec.ready_fd)

    def _take_output(self, fd: int) -> None:
        """Nobody reads our stderr any more: a defect of the supervisor is told in the output."""
        os.dup2(fd, 1, inheritable=False)
        os.dup2(fd, 2, inheritable=False)

    def _wait(self) -> None:
        poller, team = select.poll(), self._team
        reports = {rank.worker.report_fd: rank for rank in team.ranks}
        for fd in (self._wakeup_fd, team.stacks_fd, *reports):
            poller.register(fd, select.POLLIN)
        while not team.have_ended:
            growths = self._watch.growth_fds  # more of them, once a run has gone on for a while
            for fd in growths:
                poller.register(fd, select.POLLIN)
            for fd, _ in poller.poll(self._seconds_to_tick() * 1000):
                if fd == self._wakeup_fd:
                    os.read(fd, 4096)
                elif fd in growths:
                    self._watch.note_growth(fd)
                elif not (team.take_report(reports[fd]) if fd in reports else os.read(fd, 1 << 16)):
                    poller.unregister(fd)  # all of its writers closed it, it would wake us for ever
            self._handle_signals()
            if not team.have_ended:
                self._tick(time.monotonic())

    def _seconds_to_tick(self) -> float:
        kills = (at for at in (self._kill_at, self._team.kill_at) if at is not None)
        return max(0.0, min([self._watch.next, *kills]) - time.monotonic())

    def _tick(self, now: float) -> None:
        if not self._are_killed:
            self._team.look(now)
        if self._team.kill_at is not None and now >= self._team.kill_at:
            self._team.kill_at = None
            self._kill_all()
            return
        limit = self._watch.tick(now)
        if limit is not None and self._limit is None:
            self._limit = limit
            self._kill_at = now + self.spec.limits.grace_seconds
            self._team.ask()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            grace = f"{self.spec.limits.grace_seconds:g} s"
            self._overdue = f"it had not ended {grace} after it was asked to, and was killed"
            self._kill_all()

    def _handle_signals(self) -> None:
        while self._arrived:
            signum = self._arrived.popleft()
            if signum == signal.SIGCHLD:
                self._reap()
            elif signum == signals.GUARD_DIED:
                self._note_guards_death()
            elif self._team.have_ended:
                self._record.fields["stop_asked"] = True  # too late for this one, not for the next
            elif signum == signals.KILL_SIGNAL:
                self._killed = self._record.fields["stop_asked"] = True
                self._kill_all()
            else:
                self._ask()

    def _ask(self) -> None:
        if "stop_asked" not in self._record.fields:
            self._record.fields["stop_asked"] = True
            if self.spec.restart:
                self._record.write_if_possible()  # should we be killed now, the guard must know
        self._team.ask()

    def _kill_all(self) -> list[int]:
        self._are_killed = True
        left = session_processes.kill_all(self._group, on_reaped=self._note_end)
        if sys.platform != "linux":
            for pid in self._team.pids:
                kill_tree(pid, include_root=True)
        self._reap()
        return left

    def _note_guards_death(self) -> None:
        """We go on alone: ending a run because its guard was killed would lose more than that kill did. Only
        if we are killed too is anything left behind, and `lab.leftovers` finds that."""
        if os.getppid() == self._guard_pid or "guard_lost" in self._record.fields:
            return
        self._record.fields["guard_lost"] = time.time()
        self._record.write_if_possible()
        self._say("the guard of this session was killed; it goes on without")

    def _reap(self) -> None:
        """Takes the exit status of every child that ended, adopted orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        rank = self._team.note_end(pid, status)
        if rank is None:
            return
        seconds = time.monotonic() - self._started
        self._record.note_worker_end(rank.status if rank.number == 0 else None, seconds=seconds)
        if not self._are_killed:
            self._team.look(time.monotonic())

    def _end_leftovers(self) -> None:
        """After this nobody but guard and supervisor holds the lock."""
        from roost.supervisor.output.output_cap import shorten_session_output

        left = self._kill_all()
        session_processes.touch_leases(self.spec)
        self._leave_meeting()
        if left:
            self._say(f"these processes could not be ended and may still write: {left}")
        elif shorten_session_output(self.spec, self._record, self._output_fd):
            self._output_fd = open_output(self.spec.output)
            self._take_output(self._output_fd)

    def _leave_meeting(self) -> None:
        if self.spec.ranks:
            from roost.supervisor import rendezvous

            rendezvous.remove_folder(self.spec.token)

    def _record_end(self) -> int:
        from roost.supervisor import session_restart

        end = self._team.ending(killed=self._killed, limit=self._limit, overdue=self._overdue)
        if self.spec.is_launcher and end.reason == PEER_FAILED:
            from roost.supervisor import torchrun_ranks

            wait = self.spec.limits.peer_seconds + _RECORD_SECONDS
            end = torchrun_ranks.failure_on_other_machine(self._record, seconds=wait) or end
        cause = self._team.cause_to_say(end)
        if cause is not None:
            self._say(cause)
        self._watch.finish()
        self._note_ranks()
        self._record.fields |= self._team.memory()
        joined = [worker_process.is_in_cgroup(rank.worker) for rank in self._team.ranks]
        self._record.fields["scope"] = "cgroup" if all(joined) else "walk"
        is_told = cause is not None or end.state == "failed"
        self._handle_signals()  # a stop that came while all of this was done holds, too
        restarts = session_restart.plan_restart(
            self.spec, self._record, end, guard_pid=self._guard_pid, is_told=is_told
        )
        for line in self._record.write_end(end):
            self._say(line)
        if restarts is not None:
            self._say(restarts)
        return end.exit_code

    def _say(self, text: str) -> None:
        write_line(self._output_fd, text)
