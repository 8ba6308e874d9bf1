"""The memory that the processes of a session take together."""

# Standard library only

from __future__ import annotations

import contextlib
import time

from roost.supervisor.processes.process_tree import descendants

_INTERVAL_PER_COST = 1000
"""The interval to the next sample is at least this many times the cost of one: 0.1 % of a core."""
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 10.0


class ProcessTreePeak:
    """The largest sum over all samples, in MB.

    Only what exists nowhere but in memory is counted (private pages and shared memory), not the pages of
    files that the kernel can drop. The sum is an upper bound: a page that several processes share, by a fork
    or as shared memory, counts once for each. For the exact sum (PSS) the kernel would walk all pages of the
    run at each sample.
    """

    def __init__(self, root_pid: int) -> None:
        self.peak_mb = 0.0
        self._root_pid = root_pid
        self._next = 0.0

    def sample(self, now: float) -> None:
        """Measures all processes below the root, if a sample is due (``now``: monotonic seconds)."""
        if now < self._next:
            return
        began = time.process_time()
        with contextlib.suppress(OSError):  # no descriptor left: the figure must not fail the run
            self.peak_mb = max(self.peak_mb, sum(map(resident_kb, descendants(self._root_pid))) / 1024)
        cost = time.process_time() - began
        self._next = now + min(_MOST_SECONDS, max(_LEAST_SECONDS, cost * _INTERVAL_PER_COST))


def resident_kb(pid: int) -> int:
    """Returns the memory of one process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return _field(text, b"RssAnon:") + _field(text, b"RssShmem:")


def _field(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) : text.index(b"kB", at)]) if at >= 0 else 0
