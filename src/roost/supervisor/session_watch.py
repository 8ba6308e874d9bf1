"""The checks of a supervisor at each tick: time limit, leases, owner file, remote copy, output, stalls,
memory."""

# Standard library only

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base.errors import STOPPED_EXIT_CODE, Refused
from roost.base.session_end.deadline_files import (
    DeadlineFiles,
    FileDeadline,
    deadline_at_start,
    paths_of,
)
from roost.base.system.worker_protocol import TAKEN_OVER, TIME_LIMIT
from roost.package.owner import owner_file
from roost.package.session_schema import SystemUse
from roost.supervisor.exit_status import STALLED, SessionOutcome
from roost.supervisor.monitoring import stall_watch
from roost.supervisor.monitoring.durability_watch import DurabilityWatch
from roost.supervisor.monitoring.memory_peak import ProcessTreePeak, start_use
from roost.supervisor.output.output_cap import OutputCap
from roost.supervisor.output.output_file import write_line
from roost.supervisor.processes import session_processes
from roost.supervisor.processes.process_tree import descendants
from roost.supervisor.rank_processes import RankProcesses
from roost.supervisor.session_record import SessionRecordFile
from roost.supervisor.session_spec import SessionSpec

if TYPE_CHECKING:
    from roost.supervisor.monitoring.system_watch import SystemWatch

_TOUCH_LEASES_SECONDS = 60.0
"""If a run is killed together with its supervisor and guard, the time it had its cards is known to this
precision."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SYSTEM_SECONDS = 1.0
"""When cards, processes and host are measured first: most sessions that end sooner have nothing to show, and
are many."""


class SessionWatch:
    """The periodic checks of one session, imported and created once its workers run.

    Args:
        spec: The session.
        record: Receives what is found.
        workers: The workers and their outputs; messages of this class go into rank 0's output.
    """

    def __init__(self, spec: SessionSpec, record: SessionRecordFile, workers: RankProcesses) -> None:
        self._spec, self._record, self._workers = spec, record, workers
        output_fds = [rank.output_fd for rank in workers.ranks]
        limits = spec.limits
        now = self.next_tick = self._touch_leases_at = time.monotonic()
        self._given_end = now + limits.wall_seconds if limits.wall_seconds is not None else math.inf
        """When the session is asked to stop by the limits with which it started."""
        self._wall_end = self._given_end
        self._deadline_files = DeadlineFiles(paths_of(spec.env))
        self._file_deadline: FileDeadline | None = None
        self._is_over = False
        """Whether its deadline has made it stop."""
        self._caps = [OutputCap(fd, limits.output_bytes) for fd in output_fds]
        self._peak = ProcessTreePeak(os.getpid(), limits.host_memory_mb, session_file=spec.session_file)
        self._started, self._start_use = now, start_use(now)
        self._system: SystemWatch | None = None
        self._system_at = now + _SYSTEM_SECONDS if spec.system else math.inf
        self._heartbeat = (
            owner_file.Heartbeat(Path(spec.owner), spec.session, spec.token) if spec.owner else None
        )
        self._heartbeat_at = 0.0
        self._durability = DurabilityWatch(f"{spec.package}/remote.json") if spec.is_noticed else None
        self._stall: stall_watch.StallWatch | None = None
        # A user at the terminal may pause for any time.
        if limits.stall_seconds is not None and not spec.terminal:
            self._stall = stall_watch.StallWatch(spec.progress, output_fds, limits.stall_seconds, now=now)

    def tick(self, now: float) -> SessionOutcome | None:
        """Makes the checks that are due; returns the outcome of a session that is to be ended now. Call it at
        `next_tick` (monotonic seconds) or whenever something else happened."""
        if now < self.next_tick:
            return None
        if (taken_over := self._beat()) is not None:
            return taken_over
        if (exceeded := self._peak.sample(now)) is not None:
            write_line(self._workers.output_fd, exceeded.error or "")
            return exceeded
        self.next_tick = now + min(map(self._check_output, [*self._caps]), default=1.0)
        if self._heartbeat is not None:
            self.next_tick = min(self.next_tick, now + owner_file.HEARTBEAT_SECONDS)
        if self._durability is not None and self._durability.is_notice_due(now, wall=time.time()):
            from roost.supervisor.notices import run_notice_process

            run_notice_process.send_durability_notice(self._spec)
        if self._spec.system:
            self._watch_system(now)
        if self._spec.lease_fds:
            self._touch_leases(now)
        if not self._is_over:
            self._read_deadline_files(now)
        if now >= self._wall_end:
            self._is_over, self._wall_end = True, math.inf
            return SessionOutcome("stopped", STOPPED_EXIT_CODE, TIME_LIMIT, None)
        self.next_tick = min(self.next_tick, self._wall_end)
        if self._stall is not None:
            self.next_tick = min(self.next_tick, now + self._stall.tick_seconds)
            if self._stall.check(now):
                return self._record_stall(self._stall)
        return None

    @property
    def growth_fds(self) -> list[int]:
        """Descriptors that become readable when an output grows that is checked rarely; then call
        `note_growth`."""
        return [cap.growth.fd for cap in self._caps if cap.growth.fd >= 0]

    def note_growth(self, fd: int) -> None:
        """Makes the next `tick` check the output."""
        for cap in self._caps:
            if cap.growth.fd == fd:
                cap.growth.clear()
                self.next_tick = 0.0

    def finish(self) -> None:
        """Adds the measurements to the record. To be called when all processes have ended."""
        self._record.fields.peak_tree_memory_mb = round(self._peak.peak_mb, 1)
        if self._system is not None:
            try:
                self._record.fields.system = self._system.finish(time.monotonic(), self._peak.use)
            except Exception as error:  # noqa: BLE001  - as in `_watch_system`
                self._give_up_system(error)

    @property
    def spared_pids(self) -> list[int]:
        """Processes below this one that are no part of the session: they end with the supervisor, and one
        that a driver holds must not keep it."""
        return [] if self._system is None else self._system.child_pids

    def _read_deadline_files(self, now: float) -> None:
        """Takes the earliest time of the deadline files over, and gives it up when they no longer hold it.
        The worker of a training reads them too, and has stopped by then; a program, which gets a signal only,
        is asked to stop its grace time before."""
        found = self._deadline_files.earliest()
        for trouble in self._deadline_files.new_troubles:
            self._write_if_program(trouble)
        if found == self._file_deadline:
            return
        self._file_deadline = found
        self._wall_end, deadline = self._given_end, deadline_at_start(self._spec.env)
        if found is None:
            self._write_if_program("the deadline file holds no time any more")
        else:
            left = max(0.0, found.at - time.time())
            lead = min(self._spec.limits.grace_seconds, left / 2) if self._spec.is_command else 0.0
            self._wall_end = min(self._wall_end, now + left - lead)
            deadline = found.at if deadline is None else min(deadline, found.at)
            clock = time.strftime("%H:%M:%S", time.localtime(found.at))
            self._write_if_program(f"must end by {clock}, as {found.path} says")
        self._record.fields.deadline = deadline
        self._record.write_if_possible()

    def _write_if_program(self, text: str) -> None:
        """Writes what the worker of a training says on its own."""
        if self._spec.is_command:
            write_line(self._workers.output_fd, text)

    def _watch_system(self, now: float) -> None:
        if now >= self._system_at:
            try:
                if self._system is None:
                    self._system = self._start_system()
                self._system_at = self._system.tick(now, self._peak.use)
                self._peak.spared = self._system.child_pids
            except Exception as error:  # noqa: BLE001  - whatever is wrong with a measurement, the run goes on
                self._give_up_system(error)
        self.next_tick = min(self.next_tick, self._system_at)

    def _start_system(self) -> SystemWatch:
        from roost.supervisor.monitoring.system_watch import SystemWatch

        return SystemWatch(self._spec, started=self._started, start_use=self._start_use)

    def _give_up_system(self, error: Exception) -> None:
        """Records why cards, processes and host are not measured (any more). A process that asks the cards
        counts from now on as one of the session, which ends with it."""
        cause = error.strerror if isinstance(error, OSError) else None
        why = f"cards, processes and host are not measured: {cause or error}"
        self._record.fields.system = SystemUse(trouble=why)
        self._system, self._system_at = None, math.inf
        self._peak.spared = ()

    def _beat(self) -> SessionOutcome | None:
        """Renews the owner file if that is due. By a clock that counts the time in which the machine was
        suspended: then another one may have taken the package over."""
        now = time.clock_gettime(_BOOT_CLOCK)
        if self._heartbeat is None or now < self._heartbeat_at:
            return None
        self._heartbeat_at = now + owner_file.HEARTBEAT_SECONDS
        other = self._heartbeat.beat()
        if other is None:
            return None
        return SessionOutcome("failed", Refused.exit_code, TAKEN_OVER, owner_file.describe_takeover(other))

    def _touch_leases(self, now: float) -> None:
        if now >= self._touch_leases_at:
            self._touch_leases_at = now + _TOUCH_LEASES_SECONDS
            session_processes.touch_leases(self._spec)
        self.next_tick = min(self.next_tick, self._touch_leases_at)

    def _check_output(self, cap: OutputCap) -> float:
        try:
            return cap.check()
        except OSError as error:
            self._caps.remove(cap)
            if self._record.fields.output_not_cut is not None:
                return 1.0
            self._record.fields.output_not_cut = str(error)
            write_line(
                self._workers.output_fd,
                "the output exceeds limits.output_mb, and this file system cannot punch holes "
                f"({error}): the file is shortened when the session ends",
            )
            return 1.0

    def _record_stall(self, watch: stall_watch.StallWatch) -> SessionOutcome | None:
        from roost.supervisor.monitoring import process_stacks

        workers, worker_pids = self._workers, self._workers.pids
        pids = sorted(
            descendants(os.getpid(), spared=self.spared_pids), key=lambda pid: (pid not in worker_pids, pid)
        )
        samples = process_stacks.sample_processes(
            pids, read_fd=workers.stacks_fd, workers_fd=workers.workers_stacks_fd
        )
        found = stall_watch.describe_stall(
            samples,
            workers=worker_pids,
            progress_file=self._spec.progress,
            idle_seconds=watch.idle_seconds,
            stacks=self._spec.stacks,
        )
        if found.stacks:
            try:
                stall_watch.append_stacks(found, samples)
            except OSError as error:
                write_line(workers.output_fd, f"the stacks of a stalled run could not be written: {error}")
                found = found._replace(stacks="")
        fields = self._record.fields
        fields.stalls = [*fields.stalls, stall_watch.stall_as_json(found)]
        self._record.write_if_possible()
        text = stall_watch.format_stall(found)
        write_line(workers.output_fd, text)
        watch.skip_own_output()
        if self._spec.is_noticed:
            from roost.supervisor.notices import run_notice_process

            run_notice_process.send_stall_notice(self._spec)
        return SessionOutcome("failed", 1, STALLED, text) if self._spec.limits.end_stalled else None
