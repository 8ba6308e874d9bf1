"""The workers of one session: one, or one for each rank, which end together.

::

    rank 1 fails                               the cause of the session's end
    rank 0 loses the connection to rank 1      "peer": not a cause, as long as there is another
    peer_seconds after the first failure       ranks that still run are killed
"""

# Standard library only

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from roost.base.system.worker_protocol import NOT_STARTED, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY
from roost.supervisor import worker_process
from roost.supervisor.exit_status import (
    PEER_FAILED,
    STALLED,
    SessionOutcome,
    final_report,
    judge_outcome,
    status_name,
)
from roost.supervisor.output.output_file import last_lines, open_output, rank_output_path
from roost.supervisor.session_spec import SessionSpec
from roost.supervisor.worker_process import WorkerProcess

if TYPE_CHECKING:
    from roost.package.session_schema import CardMemory, RankEnd
    from roost.supervisor.forkserver.forked_worker import WarmWorker
    from roost.supervisor.monitoring.out_of_memory import OomKills

_MAX_REPORT_BYTES = 1 << 20
_UNREPORTED_REASONS = ("exit", "signal")


class RankProcess:
    """One worker, its report and its exit status.

    Args:
        number: Its rank on this machine; rank 0 prints into the session's output.
        worker: Its process.
        output_fd: The file into which it prints.
        output_start: Where in that file its own output begins, in bytes.
    """

    def __init__(self, number: int, worker: WorkerProcess, output_fd: int, *, output_start: int = 0) -> None:
        self.number, self.worker, self.output_fd = number, worker, output_fd
        self.output_start = output_start
        self.report = b""
        self.status: int | None = None
        """The worker's exit code, or minus the signal that ended it; None while it runs."""

    def read_report(self) -> int:
        """Reads what the worker has written; returns the number of bytes, 0 at the end of the pipe.

        Raises:
            BlockingIOError: The pipe is empty now, and a process may still write into it.
        """
        chunk = os.read(self.worker.report_fd, 1 << 16)
        self.report = (self.report + chunk)[-_MAX_REPORT_BYTES:]
        return len(chunk)

    def drain_report(self) -> None:
        """Reads all that is in the pipe."""
        try:
            while self.read_report():
                continue
        except BlockingIOError:  # a process that it left behind still holds the pipe; it is empty
            return

    def as_json(self) -> RankEnd:
        """Returns the fields of this rank in the session record."""
        from roost.package.session_schema import RankEnd

        found = RankEnd(rank=self.number, pid=self.worker.pid)
        if self.status is not None:
            report = final_report(self.report)
            found.status = status_name(self.status)
            if report is not None:
                found.state, found.reason = report.state, report.reason
        return found


class RankProcesses:
    """All workers of a session.

    Args:
        spec: The session.
        warm: The worker that a fork of this process can become.
    """

    def __init__(self, spec: SessionSpec, warm: WarmWorker | None = None) -> None:
        self._warm = warm
        self._group: str | None = None
        self._oom_kills_at_start: OomKills | None = None
        """The kernel's out-of-memory kills when a command started, and when it was killed itself."""
        self._oom_kills_at_end: OomKills | None = None
        self.ranks: list[RankProcess] = []
        self.stacks_fd = self.workers_stacks_fd = -1
        """One pipe receives the stacks of all workers. In the workers its write end has the second of these
        numbers."""
        self.kill_at: float | None = None
        """When the other ranks are killed because one has failed (monotonic seconds)."""
        self._spec = spec
        self._has_peers = spec.is_launcher or len(spec.ranks) > 1
        self._stop_requested = False
        self._signalled_launched: set[int] = set()
        self._failed: list[RankProcess] = []
        """The ranks that have ended, or are about to, and neither succeeded nor saved and stopped, in this
        order."""

    # --- starting -----------------------------------------------------------------------------------------

    def start(self, group: str | None) -> None:
        """Forks the workers. The signals that `worker_process.start_worker` blocks stay blocked.

        Raises:
            OSError: There are no descriptors or processes left, or an output cannot be opened.
        """
        shared = self._shared_environment()
        self._group = group
        if self._spec.is_command or self._spec.limits.host_memory_mb is not None:
            from roost.supervisor.monitoring import out_of_memory

            self._oom_kills_at_start = out_of_memory.count_oom_kills(group)
        self.stacks_fd, self.workers_stacks_fd = os.pipe()
        os.set_blocking(self.stacks_fd, False)
        for number, own in enumerate(self._spec.ranks or ({},)):
            place = {"RANK": str(number), "LOCAL_RANK": str(number)} if shared else {}
            output_fd = open_output(rank_output_path(self._spec.output, number))
            output_start = os.fstat(output_fd).st_size
            worker = worker_process.start_worker(
                self._spec,
                {**shared, **place, **own},
                output_fd=output_fd,
                stacks_fd=self.workers_stacks_fd,
                group=group,
                terminal="" if number else self._spec.terminal,
                warm=self._warm,
            )
            self.ranks.append(RankProcess(number, worker, output_fd, output_start=output_start))
        os.close(self.workers_stacks_fd)

    def _shared_environment(self) -> dict[str, str]:
        if not self._spec.ranks:
            return {}
        from roost.supervisor import rendezvous

        world = str(len(self._spec.ranks))
        return {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, **rendezvous.create_folder(self._spec.token)}

    # --- while they run -----------------------------------------------------------------------------------

    @property
    def have_ended(self) -> bool:
        """Whether all workers have ended."""
        return all(rank.status is not None for rank in self.ranks)

    @property
    def pids(self) -> list[int]:
        """The pids of the workers, by rank."""
        return [rank.worker.pid for rank in self.ranks]

    @property
    def output_fd(self) -> int:
        """The session's output."""
        return self.ranks[0].output_fd

    def request_stop(self) -> None:
        """Asks all workers to save and stop, once: a second request would make them abort their save."""
        if self._stop_requested:
            return
        self._stop_requested = True
        for rank in self.ranks:
            if rank.status is None and not self._request_launched_stop(rank):
                _request_stop(rank.worker.pid)

    def read_report_of(self, rank: RankProcess) -> int:
        """Reads what a rank has written, see `RankProcess.read_report`."""
        num_bytes = rank.read_report()
        if self._stop_requested:
            self._request_launched_stop(rank)  # some had not started when the others were asked
        return num_bytes

    def _request_launched_stop(self, rank: RankProcess) -> bool:
        """Asks the ranks of a launcher that were not asked yet to stop; returns whether there are any."""
        launched = self._launched_pids(rank)
        for pid in launched:
            if pid not in self._signalled_launched:
                self._signalled_launched.add(pid)
                _request_stop(pid)
        return bool(launched)

    def _launched_pids(self, rank: RankProcess) -> list[int]:
        """Returns the ranks that a launcher has started, as far as they have reported. The launcher itself is
        not asked to stop: torchrun would kill its ranks after half a minute, saved or not."""
        if not self._spec.is_launcher:
            return []
        from roost.supervisor.processes.process_tree import descendants
        from roost.supervisor.torchrun_ranks import launched_pids

        ours = descendants(os.getpid())
        return [pid for pid in launched_pids(rank.report) if pid in ours]

    def note_end(self, pid: int, status: int) -> RankProcess | None:
        """Records the end of a child, by its wait status; returns the rank that it was."""
        rank = next((one for one in self.ranks if one.worker.pid == pid and one.status is None), None)
        if rank is not None:
            rank.drain_report()
            rank.status = os.waitstatus_to_exitcode(status)
            if self._oom_kills_at_start is not None:
                from roost.supervisor.monitoring import out_of_memory

                if out_of_memory.is_killed_status(rank.status):
                    # Now: the cgroup, which has the count, is removed in a moment.
                    self._oom_kills_at_end = out_of_memory.count_oom_kills(self._group)
        return rank

    def check_failures(self, now: float) -> None:
        """Adds the ranks that have failed since the last call. Not to be called once all ranks are being
        killed."""
        for rank in self.ranks:
            if rank not in self._failed and self._has_failed(rank):
                self._failed.append(rank)
        if self._failed and self.kill_at is None and self._has_peers:
            self.kill_at = now + self._spec.limits.peer_seconds

    def _has_failed(self, rank: RankProcess) -> bool:
        report = final_report(rank.report)
        return rank.status is not None if report is None else report.state in ("failed", "crashed")

    # --- at the end ---------------------------------------------------------------------------------------

    def outcome(self, *, killed: bool, limit: SessionOutcome | None, overdue: str | None) -> SessionOutcome:
        """Returns the session's outcome: that of the first rank that failed on its own, else of the first
        that failed, else of rank 0. For the arguments see `roost.supervisor.exit_status.judge_outcome`."""
        rank = self._first_cause()
        assert rank.status is not None
        limit = limit or self._host_limit()
        found = judge_outcome(
            rank.report,
            rank.status,
            stop_requested=self._stop_requested,
            killed=killed,
            limit=limit,
            overdue=overdue,
            is_command=self._spec.is_command,
        )
        if (
            self._spec.is_command
            and found.state in ("failed", "crashed")
            and found.reason in _UNREPORTED_REASONS
        ):
            from roost.supervisor.monitoring import out_of_memory

            lines = last_lines(self._spec.output, rank.output_start)
            if found.reason == "exit" and lines:
                found = found._replace(error=f"{found.error}: {lines[-1]}")
            return out_of_memory.explain_out_of_memory(
                found, lines, self._oom_kills_at_start, self._oom_kills_at_end
            )
        is_own = found.state in ("failed", "crashed") and found.reason != (limit.reason if limit else None)
        return found._replace(error=self._error_text(rank, found)) if is_own else found

    def _host_limit(self) -> SessionOutcome | None:
        """Returns the outcome if the kernel has killed a process at the session's own memory limit."""
        before, after = self._oom_kills_at_start, self._oom_kills_at_end
        limit_mb = self._spec.limits.host_memory_mb
        if limit_mb is None or before is None or after is None or not (before.are_own and after.are_own):
            return None
        if after.number <= before.number:
            return None
        from roost.supervisor.monitoring.memory_peak import exceeded

        how = "were killed by the kernel when they requested more"
        return exceeded(limit_mb, how, session_file=self._spec.session_file)

    def memory_peak(self) -> CardMemory | None:
        """Returns the card memory of the largest rank; None: no rank has reported it."""
        from roost.supervisor.monitoring import card_peaks

        return card_peaks.largest_peak(rank.report for rank in self.ranks)

    def _first_cause(self) -> RankProcess:
        failed = [rank for rank in self._failed if not _is_peer(rank)] or self._failed
        if not failed:
            return self.ranks[0]
        # Of several ranks with the same error, rank 0 has printed it in the session's output.
        error = _reported_error(failed[0])
        alike = [rank for rank in failed if error is not None and _reported_error(rank) == error]
        return min(alike, key=lambda rank: rank.number, default=failed[0])

    def _error_text(self, rank: RankProcess, end: SessionOutcome) -> str | None:
        """Returns the error of a rank, with its rank and file. An error that rank 0 has printed itself needs
        neither, nor one that is about another rank."""
        is_of_rank_0 = rank.number == 0 and end.state == "failed"
        if len(self.ranks) == 1 or end.error is None or is_of_rank_0 or end.reason == PEER_FAILED:
            return end.error
        what = "traceback" if end.reason in ("exception", OUT_OF_MEMORY) else "output"
        where = os.path.basename(rank_output_path(self._spec.output, rank.number))  # noqa: PTH119
        place = f"; its {what} is in {where}" if rank.number else ""
        if end.state == "failed":
            return f"rank {rank.number} failed: {end.error}{place}"
        was = "was " if end.reason == "signal" else ""
        return f"rank {rank.number} {was}{end.error}{place}"

    def cause_to_print(self, end: SessionOutcome) -> str | None:
        """Returns the first cause if the session's output does not contain it yet: no worker prints its own
        crash."""
        report = final_report(self.ranks[0].report)
        is_printed = report is not None and report.state == "failed" and report.error == end.error
        is_lone_crash = not self._has_peers and end.state == "crashed"
        is_printed = is_printed or not (self._has_peers or is_lone_crash)
        is_printed = is_printed or end.reason in (STALLED, OUT_OF_HOST_MEMORY)  # `SessionWatch` printed it
        # No rank prints these two reasons itself.
        is_printed = is_printed and end.reason not in (PEER_FAILED, NOT_STARTED)
        if is_printed or end.state not in ("failed", "crashed"):
            return None
        who = "the command" if self._spec.is_command else f"worker {self.pids[0]}"
        return f"{who} crashed{self._near_step()}: {end.error}" if is_lone_crash else end.error

    def _near_step(self) -> str:
        """Returns `` near step 813`` by the progress record, which survives the worker; empty without one."""
        from pathlib import Path

        from roost.package import live_progress

        found = live_progress.read(Path(self._spec.progress)) if self._spec.progress else None
        return f" near step {found.step}" if found is not None and found.phase != "starting" else ""


def _is_peer(rank: RankProcess) -> bool:
    report = final_report(rank.report)
    return report is not None and report.reason == PEER_FAILED


def _reported_error(rank: RankProcess) -> str | None:
    report = final_report(rank.report)
    return report.error if report is not None else None


def _request_stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # a paused process could not react
    except ProcessLookupError:  # it has just ended, and was not a child of this process
        return
