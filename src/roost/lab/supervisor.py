"""Watches over one session: starts the worker, enforces limits, leaves nobody behind, writes down the end.

A child of the guard (`lab.guard`), which ends the run should this process be killed. Standard library only,
and little of it: every import is paid before the run begins. What is needed later is imported after the
worker was forked, while that one loads itself.

On macOS there is neither a child subreaper nor a signal at the parent's death: there both are best effort.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING

from roost.lab import record, scope, signals, spawn
from roost.lab.ending import Ending, ending
from roost.lab.output import open_output, say
from roost.lab.spec import Spec
from roost.lab.tree import kill_tree

if TYPE_CHECKING:
    from roost.lab.watch import Watch

_MAX_REPORT_BYTES = 1 << 20
_GUARD_DIED = signal.SIGUSR2
_LISTENED = (signal.SIGCHLD, _GUARD_DIED, *signals.ORDERS)


class Supervisor:
    """One session, from the worker's start to the last of its descendants.

    ::

        start:   adopt orphans, listen to signals
                 start the worker
                 record "running"; tell the operation
        watch:   until the worker has ended: wait for a signal, a word of the worker, the next tick
                     SIGTERM, SIGINT, SIGUSR1   ask the worker to stop; again: nothing more, it is saving
                     SIGQUIT                    kill everything
                     a tick                     the limits (`lab.watch`); one that was asked and overstays
                                                its grace is killed
                 kill and reap whatever it left behind
                 record the end

    Args:
        spec: The session.
        group: Its cgroup, if there is one.
        guard_pid: Our parent, as long as it lives.
    """

    def __init__(self, spec: Spec, *, group: str | None, guard_pid: int) -> None:
        self.spec, self._group, self._guard_pid = spec, group, guard_pid
        self._arrived: deque[int] = deque()
        self._wakeup_fd = -1
        self._output_fd = -1
        self._worker: spawn.Worker
        self._watch: Watch
        self._report = b""
        self._worker_status: int | None = None
        self._asked_to_stop = self._killed = False
        self._limit: Ending | None = None
        self._overdue: str | None = None
        self._kill_at: float | None = None
        self._record = record.Record(spec.session_file, {})
        self._started = time.monotonic()

    def start(self) -> None:
        """Starts the session and says so. Raises OSError if it cannot be started or recorded; then nothing of
        it is left."""
        self._listen()
        scope.adopt_orphans()
        try:
            self._start_worker()
            self._record.fields = record.started(
                self.spec.session, worker_pid=self._worker.pid, guard_pid=self._guard_pid, group=self._group
            )
            self._record.write()
        except BaseException:
            scope.end_all(self._group)
            raise
        self._announce()

    def watch(self) -> int:
        """Sees the session through; gives the exit code."""
        from roost.lab.watch import Watch

        self._watch = Watch(self.spec, self._record, self._worker, self._output_fd)
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
        for signum in _LISTENED:
            signal.signal(signum, self._note_signal)
        scope.signal_at_parents_death(_GUARD_DIED)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _note_signal(self, signum: int, frame: FrameType | None) -> None:
        self._arrived.append(signum)

    def _start_worker(self) -> None:
        self._output_fd = open_output(self.spec.output)
        self._worker = spawn.start(self.spec, output_fd=self._output_fd, group=self._group)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _announce(self) -> None:
        self._take_output(self._output_fd)
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
        poller = select.poll()
        for fd in (self._wakeup_fd, self._worker.report_fd, self._worker.stacks_fd, self._watch.growth_fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        while self._worker_status is None:
            for fd, _ in poller.poll(self._seconds_to_tick() * 1000):
                if fd == self._wakeup_fd:
                    os.read(fd, 4096)
                elif fd == self._watch.growth_fd:
                    self._watch.note_growth()
                elif not (self._read_report() if fd == self._worker.report_fd else os.read(fd, 1 << 16)):
                    poller.unregister(fd)  # all of its writers closed it, it would wake us for ever
            self._handle_signals()
            if self._worker_status is None:
                self._tick(time.monotonic())

    def _seconds_to_tick(self) -> float:
        at = self._watch.next if self._kill_at is None else min(self._watch.next, self._kill_at)
        return max(0.0, at - time.monotonic())

    def _tick(self, now: float) -> None:
        limit = self._watch.tick(now)
        if limit is not None and self._limit is None:
            self._limit = limit
            self._kill_at = now + self.spec.limits.grace_seconds
            self._ask()
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
            elif signum == _GUARD_DIED:
                self._note_guards_death()
            elif self._worker_status is not None:
                continue  # too late: it has ended already
            elif signum == signals.KILL:
                self._killed = True
                self._kill_all()
            else:
                self._ask()

    def _ask(self) -> None:
        """Asked twice (a second `roost stop`), it must not lose its save."""
        if not self._asked_to_stop:
            self._asked_to_stop = True
            os.kill(self._worker.pid, signal.SIGTERM)
            os.kill(self._worker.pid, signal.SIGCONT)  # one that is paused could not answer

    def _kill_all(self) -> list[int]:
        left = scope.end_all(self._group, on_reaped=self._note_end)
        if sys.platform != "linux":
            kill_tree(self._worker.pid, include_root=True)
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
        if pid == self._worker.pid and self._worker_status is None:
            self._worker_status = os.waitstatus_to_exitcode(status)
            self._record.note_worker_end(self._worker_status, seconds=time.monotonic() - self._started)

    def _read_report(self) -> int:
        """Takes what the worker wrote; gives the number of bytes, 0 at the end of the pipe."""
        chunk = os.read(self._worker.report_fd, 1 << 16)
        self._report = (self._report + chunk)[-_MAX_REPORT_BYTES:]
        return len(chunk)

    def _read_rest_of_report(self) -> None:
        try:
            while self._read_report():
                continue
        except BlockingIOError:  # a process that could not be ended still holds the pipe: there is no more
            return

    def _end_leftovers(self) -> None:
        """After this nobody but guard and supervisor holds the lock."""
        from roost.lab.capture import shorten_at_end

        left = self._kill_all()
        self._read_rest_of_report()
        if left:
            self._say(f"these processes could not be ended and may still write: {left}")
        elif shorten_at_end(self.spec, self._record, self._output_fd):
            self._output_fd = open_output(self.spec.output)
            self._take_output(self._output_fd)

    def _record_end(self) -> int:
        assert self._worker_status is not None
        end = ending(
            self._report,
            self._worker_status,
            asked_to_stop=self._asked_to_stop,
            killed=self._killed,
            limit=self._limit,
            overdue=self._overdue,
        )
        self._watch.finish()
        self._record.fields["scope"] = "cgroup" if spawn.joined(self._worker) else "walk"
        for line in self._record.write_end(end):
            self._say(line)
        return end.exit_code

    def _say(self, text: str) -> None:
        say(self._output_fd, text)
