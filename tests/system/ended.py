"""Sessions of one rank or of several that are ended at some moment, in every manner."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Literal, NamedTuple

import exact
from forked import fork_ranks

from roost.base.errors import STOPPED_EXIT_CODE
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.supervisor.output.output_file import rank_output_path

End = Literal["kill", "trainer", "worker", "rank", "stop", "stop-one"]
PEER_SECONDS = 10.0
"""How long the others may take to end after one rank has: what the supervisor gives them."""


class Cell(NamedTuple):
    """How a run is trained and saved."""

    ranks: int = 1
    strategy: str = "single"
    asynchronous: bool = True

    @property
    def settings(self) -> list[str]:
        return [f"checkpoint.asynchronous={str(self.asynchronous).lower()}"]

    def fork(self, package: PackageFolder, overrides: list[str]) -> list[int]:
        """A session of so many ranks; gives their pids."""
        return fork_ranks(package, overrides, count=self.ranks, strategy=self.strategy)


def wait_for_ranks(pids: list[int]) -> list[int]:
    """The exit codes of a session's ranks, once all have ended."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def output_tails(package: PackageFolder, num_ranks: int) -> str:
    """The tails of what the ranks have printed."""
    paths = [Path(rank_output_path(str(package.output), rank)) for rank in range(num_ranks)]
    return "\n".join(path.read_text()[-2000:] for path in paths if path.exists())


def workers_of(pid: int) -> list[int]:
    """The processes that a trainer has started, in that order."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def end_when(package: PackageFolder, pids: list[int], moment: exact.Moment, *, by: End) -> tuple[bool, str]:
    """Ends the session at the moment: by SIGKILL to its groups, to the trainer alone, to its last rank, upon
    which the others end, or to a loader worker, upon which it fails; or by SIGTERM to all ranks or to the
    last one, upon which it saves and exits with 75. False when it ended well.

    Args:
        package: Whose.
        pids: Of its ranks.
        moment: When.
        by: How.
    """
    live_progress.reset(package.progress)
    deadline = time.monotonic() + 60
    while True:
        ended, status = os.waitpid(pids[0], os.WNOHANG)
        if ended:
            codes = [os.waitstatus_to_exitcode(status), *wait_for_ranks(pids[1:])]
            if any(codes):
                raise AssertionError(f"{codes} in {package.path}: {output_tails(package, len(pids))}")
            return False, "ended"
        if moment(package.path, time.monotonic()) or time.monotonic() > deadline:
            look = live_progress.read(package.progress)
            return _end(pids, by, look.phase if look else "importing")
        time.sleep(0.0003)


def _end(pids: list[int], by: End, phase: str) -> tuple[bool, str]:
    if by == "worker":
        workers = workers_of(pids[-1])
        by = "worker" if workers else "kill"
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        if by == "stop":
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
        elif by == "stop-one":
            os.kill(pids[-1], signal.SIGTERM)
        elif by == "worker":
            os.kill(workers[-1], signal.SIGKILL)
        elif by in ("trainer", "rank"):
            os.kill(pids[-1], signal.SIGKILL)
        else:
            for pid in pids:
                os.killpg(pid, signal.SIGKILL)
    may_wait = phase not in ("importing", "starting")  # there a rank waits for others to come up, minutes
    codes = _codes_after(pids, PEER_SECONDS, may_wait=may_wait)
    _check_codes(by, codes, has_begun=may_wait)
    return any(codes), f"{by} {phase}" if any(codes) else "ended"


def _codes_after(pids: list[int], seconds: float, *, may_wait: bool) -> list[int]:
    """The exit codes; a rank that has not ended some time after the first is killed, as by the supervisor."""
    codes: dict[int, int] = {}
    kill_at = float("inf")
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes and (found := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(found[1])
                # Those that have stopped well save together, which is over when one of them ends.
                kill_at = min(kill_at, time.monotonic() + (seconds if may_wait else 0.5))
        if time.monotonic() > kill_at:
            assert not may_wait, f"after {seconds:g} s some still ran: {codes} of {pids}"
            for pid in pids:
                if pid not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.0005)
    return [codes[pid] for pid in pids]


def _check_codes(by: End, codes: list[int], *, has_begun: bool) -> None:
    killed, stopped = -signal.SIGKILL, -signal.SIGTERM
    # 0: it had just ended. Of a stop the last two: before all could listen, and what becomes of the others
    # then. Every worker must be found.
    allowed = {
        "stop": {0, STOPPED_EXIT_CODE, stopped, 1, killed},
        "stop-one": {0, STOPPED_EXIT_CODE, stopped, 1, killed},
        "worker": {0, 1},
    }
    others = {1} if len(codes) > 1 else set()  # a rank that hears of another's end before its own
    assert set(codes) <= allowed.get(by, {0, killed, *others}), f"{by}: {codes}"
    if has_begun and by in ("stop", "stop-one"):
        assert len(set(codes)) == 1 and codes[0] in (0, STOPPED_EXIT_CODE), f"{by}: {codes}"
