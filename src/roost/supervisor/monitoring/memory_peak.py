"""What the processes of a session use together: their memory and its limit, processor time, disks."""

# Standard library only

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from collections.abc import Collection
from typing import NamedTuple

from roost.base.system.worker_protocol import OUT_OF_HOST_MEMORY
from roost.package.session_schema import SessionRecord
from roost.supervisor.exit_status import SessionOutcome
from roost.supervisor.processes.process_tree import descendant_stats

_INTERVAL_PER_COST = 1000
"""The interval to the next sample is at least this many times the cost of one: 0.1 % of a core."""
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 10.0
_LIMITED_INTERVAL_PER_COST, _LIMITED_MOST_SECONDS = 100, 1.0
"""The same where a limit is enforced, which costs more."""
_RECORD = re.compile(r"\d+\.json")
_MORE_MEMORY = 1.5
"""A limit that was too small is suggested to be raised by this factor."""


class TreeUse(NamedTuple):
    """The resources that the processes of a session have used, and use now."""

    seconds: float
    """When it was measured, monotonic."""
    cpu_seconds: float
    """The processor time of all, those that have ended too."""
    memory_mb: float
    read_bytes: int
    """What they have read from disks, those that have ended too; likewise the next field."""
    written_bytes: int
    num_processes: int


def start_use(now: float) -> TreeUse:
    """Returns what the processes of this supervisor had used before its session: nothing, but for its own
    reading and writing, which is counted with theirs."""
    read, written = storage_bytes(os.getpid())
    return TreeUse(now, ended_cpu_seconds(), 0.0, read, written, 0)


class ProcessTreePeak:
    """The largest sum over all samples, in MB.

    Args:
        root_pid: The processes below this one count.
        limit_mb: What they may take together; None: no limit.
        session_file: The record of the session, beside those of earlier ones.

    Only what exists nowhere but in memory is counted (private pages and shared memory), not the pages of
    files that the kernel can drop. The sum is an upper bound: a page that several processes share, by a fork
    or as shared memory, counts once for each. For the exact sum (PSS) the kernel would walk all pages of the
    run at each sample, so it is read only where the upper bound exceeds the limit.
    """

    def __init__(self, root_pid: int, limit_mb: int | None = None, *, session_file: str = "") -> None:
        self.peak_mb = 0.0
        self.use: TreeUse | None = None
        """The newest sample."""
        self.spared: Collection[int] = ()
        """Processes below the root that are no part of the session."""
        self._session_file = session_file
        self._root_pid, self._limit_mb = root_pid, limit_mb
        self._next = 0.0

    def sample(self, now: float) -> SessionOutcome | None:
        """Measures all processes below the root, if a sample is due (``now``: monotonic seconds). Returns the
        outcome of the session if they exceed the limit."""
        if now < self._next:
            return None
        began, found = time.process_time(), None
        with contextlib.suppress(OSError):  # no descriptor left: the figure must not fail the run
            stats = descendant_stats(self._root_pid, spared=self.spared)
            sampled_mb = sum(map(resident_kb, stats)) / 1024
            self.peak_mb = max(self.peak_mb, sampled_mb)
            if self._limit_mb is not None and sampled_mb > self._limit_mb:
                found = self._check_limit([*stats], self._limit_mb)
            # What was waited for is added to its parent, so that no process is missed or counted twice.
            storage = [storage_bytes(pid) for pid in (*stats, self._root_pid)]
            self.use = TreeUse(
                now,
                sum(stat.cpu_seconds for stat in stats.values()) + ended_cpu_seconds(),
                sampled_mb,
                sum(read for read, _ in storage),
                sum(written for _, written in storage),
                len(stats),
            )
        cost = time.process_time() - began
        per_cost, most = _INTERVAL_PER_COST, _MOST_SECONDS
        if self._limit_mb is not None:
            per_cost, most = _LIMITED_INTERVAL_PER_COST, _LIMITED_MOST_SECONDS
        self._next = now + min(most, max(_LEAST_SECONDS, cost * per_cost))
        return found

    def _check_limit(self, pids: list[int], limit_mb: int) -> SessionOutcome | None:
        sizes = sorted(((proportional_kb(pid) / 1024, pid) for pid in pids), reverse=True)
        used_mb = sum(mb for mb, _ in sizes)
        if used_mb <= limit_mb:
            return None
        mb, pid = sizes[0]
        how = f"took {used_mb:.0f} MB, the largest (pid {pid}) {mb:.0f} MB"
        return exceeded(limit_mb, how, session_file=self._session_file, used_mb=used_mb)


def exceeded(limit_mb: int, how: str, *, session_file: str, used_mb: float = 0.0) -> SessionOutcome:
    """Returns the outcome of a session that has exceeded its limit.

    Args:
        limit_mb: The limit.
        how: What its processes did.
        session_file: The record of the session. What earlier ones took beside it counts too: this one may
            have ended before it needed as much.
        used_mb: What was measured of this one.
    """
    needed_mb = max(limit_mb, used_mb, recorded_peak_mb(os.path.dirname(session_file)))  # noqa: PTH120
    fix = f"request more: --host-memory {round(needed_mb * _MORE_MEMORY)}MB"
    error = f"out of host memory: it may have {limit_mb} MB (--host-memory), and its processes {how}; {fix}"
    return SessionOutcome("failed", 1, OUT_OF_HOST_MEMORY, error)


def recorded_peak_mb(folder: str) -> float:
    """Returns the largest memory of all processes together that a session record in a folder has; 0 if none
    has one."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return 0.0
    records = [SessionRecord.load(f"{folder}/{name}") for name in names if _RECORD.fullmatch(name)]
    return max((one.peak_tree_memory_mb or 0.0 for one in records if one is not None), default=0.0)


def resident_kb(pid: int) -> int:
    """Returns the memory of one process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return _field(text, b"RssAnon:") + _field(text, b"RssShmem:")


def ended_cpu_seconds() -> float:
    """Returns the processor time of the processes that this one has waited for, and of those they had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def storage_bytes(pid: int) -> tuple[int, int]:
    """Returns what one process, with the processes that it has waited for, has read from disks, and
    written; zero if it has ended, or is not ours to ask."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0, 0
    counts = {name: int(count) for name, count in (line.split(b": ") for line in text.splitlines())}
    return counts.get(b"read_bytes", 0), counts.get(b"write_bytes", 0)


def proportional_kb(pid: int) -> int:
    """Returns the same with shared pages divided by the number of processes that share them. Where the kernel
    does not report that (before Linux 5.3), the upper bound."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return resident_kb(pid)
    if b"Pss_Anon:" not in text:
        return resident_kb(pid)
    return _field(text, b"Pss_Anon:") + _field(text, b"Pss_Shmem:")


def _field(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) : text.index(b"kB", at)]) if at >= 0 else 0
