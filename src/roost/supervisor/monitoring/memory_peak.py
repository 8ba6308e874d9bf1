"""How much memory the processes of a session take together."""

# Standard library only

from __future__ import annotations

import contextlib
import time

from roost.supervisor.processes.process_tree import descendants

_INTERVAL_PER_COST = 1000
"""A look may cost this part of the time until the next one: 0.1 % of a core."""
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 10.0


class ProcessTreePeak:
    """The largest sum that was seen, in MB.

    Counted is what only exists in memory (private pages and shared memory), not the pages of files that the
    kernel can drop. It is an upper bound: a page that several processes share, by a fork or as shared memory,
    counts once for each. The exact sum (PSS) would have the kernel walk all pages of the run at each look.
    """

    def __init__(self, root_pid: int) -> None:
        self.mb = 0.0
        self._root_pid = root_pid
        self._next = 0.0

    def look(self, now: float) -> None:
        """Looks at everything below the root, if it is time for that again (``now``: monotonic seconds)."""
        if now < self._next:
            return
        began = time.process_time()
        with contextlib.suppress(OSError):  # no descriptor left: the run is worth more than the figure
            self.mb = max(self.mb, sum(map(resident_kb, descendants(self._root_pid))) / 1024)
        cost = time.process_time() - began
        self._next = now + min(_MOST_SECONDS, max(_LEAST_SECONDS, cost * _INTERVAL_PER_COST))


def resident_kb(pid: int) -> int:
    """The memory of one process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return _field(text, b"RssAnon:") + _field(text, b"RssShmem:")


def _field(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) : text.index(b"kB", at)]) if at >= 0 else 0
