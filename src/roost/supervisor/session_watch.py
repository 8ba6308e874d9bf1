"""What a supervisor does at each tick of its clock: time limit, leases, output, stalls, memory."""

# Standard library only

from __future__ import annotations

import os
import time

from roost.base.errors import STOPPED_EXIT_CODE
from roost.base.system.worker_protocol import TIME_LIMIT
from roost.supervisor.exit_status import STALLED, SessionOutcome
from roost.supervisor.monitoring import stall_watch
from roost.supervisor.monitoring.memory_peak import ProcessTreePeak
from roost.supervisor.output.output_cap import OutputCap
from roost.supervisor.output.output_file import write_line
from roost.supervisor.processes import session_processes
from roost.supervisor.processes.process_tree import descendants
from roost.supervisor.rank_processes import RankProcesses
from roost.supervisor.session_record import SessionRecord
from roost.supervisor.session_spec import SessionSpec

_TOUCH_LEASES_SECONDS = 60.0
"""How exactly it is known how long a run had its cards that was killed with its supervisor and guard."""


class SessionWatch:
    """The clock of one session, imported and made once its workers run.

    Args:
        spec: The session.
        record: Gets what is found out.
        team: Its workers, and what they print; rank 0's output takes what is said here.
    """

    def __init__(self, spec: SessionSpec, record: SessionRecord, team: RankProcesses) -> None:
        self._spec, self._record, self._team = spec, record, team
        output_fds = [rank.output_fd for rank in team.ranks]
        limits = spec.limits
        now = self.next = self._mark_at = time.monotonic()
        self._wall_end = now + limits.wall_seconds if limits.wall_seconds is not None else None
        self._caps = [OutputCap(fd, limits.output_bytes) for fd in output_fds]
        self._peak = ProcessTreePeak(os.getpid())
        # Who sits at the terminal may think for as long as he likes.
        self._stall: stall_watch.StallWatch | None = None
        if limits.stall_seconds is not None and not spec.terminal:
            self._stall = stall_watch.StallWatch(spec.progress, output_fds, limits.stall_seconds, now=now)

    def tick(self, now: float) -> SessionOutcome | None:
        """Does what is due; gives how the session ends if it is to be ended now. Call it at `next` (monotonic
        seconds) or whenever something else happened."""
        if now < self.next:
            return None
        self._peak.look(now)
        self.next = now + min(map(self._look_at_output, [*self._caps]), default=1.0)
        if self._spec.lease_fds:
            self._mark_leases(now)
        if self._wall_end is not None and now >= self._wall_end:
            self._wall_end = None
            return SessionOutcome("stopped", STOPPED_EXIT_CODE, TIME_LIMIT, None)
        if self._wall_end is not None:
            self.next = min(self.next, self._wall_end)
        if self._stall is not None:
            self.next = min(self.next, now + self._stall.tick_seconds)
            if self._stall.look(now):
                return self._stalled(self._stall)
        return None

    @property
    def growth_fds(self) -> list[int]:
        """Readable when an output grows while it is seldom looked at; then call `note_growth`."""
        return [cap.growth.fd for cap in self._caps if cap.growth.fd >= 0]

    def note_growth(self, fd: int) -> None:
        """Has the next `tick` look at the output."""
        for cap in self._caps:
            if cap.growth.fd == fd:
                cap.growth.take()
                self.next = 0.0

    def finish(self) -> None:
        """Adds what was measured to the record."""
        self._record.fields["peak_tree_memory_mb"] = round(self._peak.mb, 1)

    def _mark_leases(self, now: float) -> None:
        if now >= self._mark_at:
            self._mark_at = now + _TOUCH_LEASES_SECONDS
            session_processes.touch_leases(self._spec)
        self.next = min(self.next, self._mark_at)

    def _look_at_output(self, cap: OutputCap) -> float:
        try:
            return cap.look()
        except OSError as error:
            self._caps.remove(cap)
            if "output_not_cut" in self._record.fields:
                return 1.0
            self._record.fields["output_not_cut"] = str(error)
            write_line(
                self._team.output_fd,
                "the output has grown beyond limits.output_mb, and this disk cannot take the middle out "
                f"of a file ({error}): it is shortened when the session ends",
            )
            return 1.0

    def _stalled(self, watch: stall_watch.StallWatch) -> SessionOutcome | None:
        from roost.supervisor.monitoring import process_stacks

        team, workers = self._team, self._team.pids
        pids = sorted(descendants(os.getpid()), key=lambda pid: (pid not in workers, pid))
        looks = process_stacks.sample_processes(pids, read_fd=team.stacks_fd, their_fd=team.their_stacks_fd)
        found = stall_watch.describe_stall(
            looks,
            workers=workers,
            board=self._spec.progress,
            idle_seconds=watch.idle_seconds,
            stacks=self._spec.stacks,
        )
        if found.stacks:
            try:
                stall_watch.append_stacks(found, looks)
            except OSError as error:
                write_line(team.output_fd, f"the stacks of a stalled run could not be written: {error}")
                found = found._replace(stacks="")
        self._record.fields.setdefault("stalls", []).append(stall_watch.stall_as_json(found))
        self._record.write_if_possible()
        text = stall_watch.format_stall(found)
        write_line(team.output_fd, text)
        watch.pass_over_output()
        if self._spec.is_noticed:
            from roost.supervisor.notices import run_notice_process

            run_notice_process.send_stall_notice(self._spec)
        return SessionOutcome("failed", 1, STALLED, text) if self._spec.limits.end_stalled else None
