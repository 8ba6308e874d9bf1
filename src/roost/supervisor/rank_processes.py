"""The workers of one session: one, or one for each rank, which end together.

::

    rank 1 fails by itself                     the cause of the session's end
    rank 0 hears from it no more               "peer": no cause, as long as there is another
    some seconds after the first of them       whoever has not ended by now is killed
"""

# Standard library only

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.supervisor import worker_process
from roost.supervisor.exit_status import NOT_STARTED, PEER_FAILED, STALLED, SessionOutcome, judge_outcome, final_report, status_name
from roost.supervisor.output.output_file import open_output, rank_output_path, last_lines
from roost.supervisor.session_spec import SessionSpec
from roost.supervisor.worker_process import WorkerProcess

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker
    from roost.supervisor.monitoring.out_of_memory import OomKills

_MAX_REPORT_BYTES = 1 << 20
_UNREPORTED_REASONS = ("exit", "signal")


class RankProcess:
    """One worker, and what is known of it.

    Args:
        number: Its rank on this machine; 0 is the one that prints into the session's output.
        worker: Its process.
        output_fd: What it prints into.
        begins: Where in that its own output begins, in bytes.
    """

    def __init__(self, number: int, worker: WorkerProcess, output_fd: int, *, begins: int = 0) -> None:
        self.number, self.worker, self.output_fd = number, worker, output_fd
        self.output_begins = begins
        self.report = b""
        self.status: int | None = None
        """Its exit code, or minus the signal that ended it, once it has ended."""

    def read_report(self) -> int:
        """Takes what it wrote; gives the number of bytes, 0 at the end of the pipe.

        Raises:
            BlockingIOError: There is nothing now, and somebody may write still.
        """
        chunk = os.read(self.worker.report_fd, 1 << 16)
        self.report = (self.report + chunk)[-_MAX_REPORT_BYTES:]
        return len(chunk)

    def read_rest_of_report(self) -> None:
        """Takes all that waits in the pipe."""
        try:
            while self.read_report():
                continue
        except BlockingIOError:  # a process that it left behind still holds the pipe: there is no more
            return

    def as_json(self) -> dict[str, Any]:
        """For the record."""
        found: dict[str, Any] = {"rank": self.number, "pid": self.worker.pid}
        if self.status is not None:
            said = final_report(self.report)
            found["status"] = status_name(self.status)
            found |= {"state": said.state, "reason": said.reason} if said is not None else {}
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
        self._kills: OomKills | None = None
        """What the kernel had killed for memory when a command began, and when it was killed itself."""
        self._kills_at_end: OomKills | None = None
        self.ranks: list[RankProcess] = []
        self.stacks_fd = self.their_stacks_fd = -1
        """One pipe takes the stacks of all, who know their end by the second of these numbers."""
        self.kill_at: float | None = None
        """When the others are killed because one has failed (monotonic seconds)."""
        self._spec = spec
        self._are_several = spec.is_launcher or len(spec.ranks) > 1
        self._asked = False
        self._launched_asked: set[int] = set()
        self._fallen: list[RankProcess] = []
        """Who has ended, or is about to, and neither succeeded nor saved and stopped; in this order."""

    # --- starting -----------------------------------------------------------------------------------------

    def start(self, group: str | None) -> None:
        """Forks them. The signals that `spawn.start` blocks stay blocked.

        Raises:
            OSError: There are no descriptors or processes left, or an output cannot be opened.
        """
        shared = self._shared_environment()
        self._group = group
        if self._spec.is_command:
            from roost.supervisor.monitoring import out_of_memory

            self._kills = out_of_memory.count_oom_kills(group)
        self.stacks_fd, self.their_stacks_fd = os.pipe()
        os.set_blocking(self.stacks_fd, False)
        for number, own in enumerate(self._spec.ranks or ({},)):
            place = {"RANK": str(number), "LOCAL_RANK": str(number)} if shared else {}
            output_fd = open_output(rank_output_path(self._spec.output, number))
            begins = os.fstat(output_fd).st_size
            worker = worker_process.start_worker(
                self._spec,
                {**shared, **place, **own},
                output_fd=output_fd,
                stacks_fd=self.their_stacks_fd,
                group=group,
                terminal="" if number else self._spec.terminal,
                warm=self._warm,
            )
            self.ranks.append(RankProcess(number, worker, output_fd, begins=begins))
        os.close(self.their_stacks_fd)

    def _shared_environment(self) -> dict[str, str]:
        if not self._spec.ranks:
            return {}
        from roost.supervisor import rendezvous

        world = str(len(self._spec.ranks))
        return {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, **rendezvous.create_folder(self._spec.token)}

    # --- while they run -----------------------------------------------------------------------------------

    @property
    def have_ended(self) -> bool:
        """Whether none of them runs any more."""
        return all(rank.status is not None for rank in self.ranks)

    @property
    def pids(self) -> list[int]:
        """Those of the workers, by rank."""
        return [rank.worker.pid for rank in self.ranks]

    @property
    def output_fd(self) -> int:
        """The session's output."""
        return self.ranks[0].output_fd

    def ask(self) -> None:
        """Asks all of them to save and end. Asked twice, they must not lose their save: so it is once."""
        if self._asked:
            return
        self._asked = True
        for rank in self.ranks:
            if rank.status is None and not self._ask_launched(rank):
                _request_stop(rank.worker.pid)

    def take_report(self, rank: RankProcess) -> int:
        """Reads what a rank has written, see `RankProcess.read_report`."""
        num_bytes = rank.read_report()
        if self._asked:
            self._ask_launched(rank)  # some were not there yet when the others were asked
        return num_bytes

    def _ask_launched(self, rank: RankProcess) -> bool:
        """Asks the ranks of a launcher that were not asked yet; gives whether there are any."""
        launched = self._launched(rank)
        for pid in launched:
            if pid not in self._launched_asked:
                self._launched_asked.add(pid)
                _request_stop(pid)
        return bool(launched)

    def _launched(self, rank: RankProcess) -> list[int]:
        """The ranks that a launcher has started, as far as they said so. It is not asked itself: torchrun
        would kill them after half a minute, saved or not."""
        if not self._spec.is_launcher:
            return []
        from roost.supervisor.processes.process_tree import descendants
        from roost.supervisor.torchrun_ranks import launched_pids

        ours = descendants(os.getpid())
        return [pid for pid in launched_pids(rank.report) if pid in ours]

    def note_end(self, pid: int, status: int) -> RankProcess | None:
        """Notes the end of a child, by its wait status; gives the rank that it was."""
        rank = next((one for one in self.ranks if one.worker.pid == pid and one.status is None), None)
        if rank is not None:
            rank.read_rest_of_report()
            rank.status = os.waitstatus_to_exitcode(status)
            if self._kills is not None:
                from roost.supervisor.monitoring import out_of_memory

                if out_of_memory.is_killed_status(
                    rank.status
                ):  # now: its group, which counts them, is gone in a moment
                    self._kills_at_end = out_of_memory.count_oom_kills(self._group)
        return rank

    def look(self, now: float) -> None:
        """Sees who has fallen since the last look. Not to be called once all are being killed."""
        for rank in self.ranks:
            if rank not in self._fallen and self._has_fallen(rank):
                self._fallen.append(rank)
        if self._fallen and self.kill_at is None and self._are_several:
            self.kill_at = now + self._spec.limits.peer_seconds

    def _has_fallen(self, rank: RankProcess) -> bool:
        said = final_report(rank.report)
        return rank.status is not None if said is None else said.state in ("failed", "crashed")

    # --- at the end ---------------------------------------------------------------------------------------

    def ending(self, *, killed: bool, limit: SessionOutcome | None, overdue: str | None) -> SessionOutcome:
        """How the session ended: as the first that has fallen by itself, else as the first that has fallen,
        else as rank 0. For the arguments see `roost.supervisor.exit_status.judge_outcome`."""
        rank = self._decisive()
        assert rank.status is not None
        found = judge_outcome(
            rank.report,
            rank.status,
            asked_to_stop=self._asked,
            killed=killed,
            limit=limit,
            overdue=overdue,
            is_command=self._spec.is_command,
        )
        if self._spec.is_command and found.state in ("failed", "crashed") and found.reason in _UNREPORTED_REASONS:
            from roost.supervisor.monitoring import out_of_memory

            lines = last_lines(self._spec.output, rank.output_begins)
            if found.reason == "exit" and lines:
                found = found._replace(error=f"{found.error}: {lines[-1]}")
            return out_of_memory.explain_out_of_memory(found, lines, self._kills, self._kills_at_end)
        is_own = found.state in ("failed", "crashed") and found.reason != (limit.reason if limit else None)
        return found._replace(error=self._sentence(rank, found)) if is_own else found

    def memory(self) -> dict[str, Any]:
        """For the record: what the largest rank has taken of its card, where that was told."""
        from roost.supervisor.monitoring import card_peaks

        found = card_peaks.largest_peak(rank.report for rank in self.ranks)
        return {} if found is None else {"memory": found}

    def _decisive(self) -> RankProcess:
        fallen = [rank for rank in self._fallen if not _is_peer(rank)] or self._fallen
        if not fallen:
            return self.ranks[0]
        # Of what has struck several alike, rank 0 has told in the session's output.
        error = _reported_error(fallen[0])
        alike = [rank for rank in fallen if error is not None and _reported_error(rank) == error]
        return min(alike, key=lambda rank: rank.number, default=fallen[0])

    def _sentence(self, rank: RankProcess, end: SessionOutcome) -> str | None:
        """What became of a rank. What rank 0 told itself needs no more words, nor what is about another."""
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

    def cause_to_say(self, end: SessionOutcome) -> str | None:
        """The first cause, where the session's output does not hold it yet."""
        said = final_report(self.ranks[0].report)
        is_told = said is not None and said.state == "failed" and said.error == end.error
        is_told = is_told or not self._are_several or end.reason == STALLED  # the watch has told it
        is_told = is_told and end.reason not in (PEER_FAILED, NOT_STARTED)  # of that no rank says anything itself
        return None if is_told or end.state not in ("failed", "crashed") else end.error


def _is_peer(rank: RankProcess) -> bool:
    said = final_report(rank.report)
    return said is not None and said.reason == PEER_FAILED


def _reported_error(rank: RankProcess) -> str | None:
    said = final_report(rank.report)
    return said.error if said is not None else None


def _request_stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # one that is paused could not answer
    except ProcessLookupError:  # it ended just now, and was not our child
        return
