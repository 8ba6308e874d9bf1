"""How long this process waits for a CPU core that other processes use (standard library only)."""

# Standard library only

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from roost.base.system import cpu_cores
from roost.base.text.counts import format_cores

_TASKS = Path("/proc/self/task")
_BUSY_SHARE = 0.3
_MIN_SECONDS = 1.0
"""Seconds of requested CPU time."""


class CpuTime(NamedTuple):
    """What all threads of a process together have got of the CPU since they began."""

    computed: float = 0.0
    """Seconds on a core."""
    waited: float = 0.0
    """Seconds in which a thread could have computed, but no core was free for it."""

    @property
    def is_known(self) -> bool:
        """Whether there was enough time for `wait_share`: in less, a single time slice counts too much."""
        return self.computed + self.waited >= _MIN_SECONDS

    @property
    def wait_share(self) -> float:
        """The part, from 0 to 1, of the requested CPU time that the process did not get."""
        requested = self.computed + self.waited
        return self.waited / requested if requested > 0 else 0.0

    def since(self, before: CpuTime) -> CpuTime:
        """Returns the time after ``before``. Threads that ended in between are missing in this one."""
        return CpuTime(max(0.0, self.computed - before.computed), max(0.0, self.waited - before.waited))


def read(tasks: Path = _TASKS) -> CpuTime:
    """Returns the CPU time of this process; zero where the kernel does not count it. Takes 10 µs a thread."""
    computed = waited = 0
    try:
        for thread in os.listdir(tasks):  # noqa: PTH208
            try:
                with open(tasks / thread / "schedstat", "rb") as file:
                    one = file.read().split()
            except OSError:  # the thread has ended
                continue
            computed, waited = computed + int(one[0]), waited + int(one[1])
    except (OSError, ValueError, IndexError):
        return CpuTime()
    return CpuTime(computed / 1e9, waited / 1e9)


def format_busy(time: CpuTime, *, threads: int) -> str:
    """Returns a line that names the competition for the CPU; empty if there is little, or too little time to
    know.

    Args:
        time: What the process has got.
        threads: The threads of one operation.
    """
    if not time.is_known or time.wait_share < _BUSY_SHARE:
        return ""
    hint = "; `roost check` measures whether threads=1 is faster" if threads > 1 else ""
    share = f"this run gets {1 - time.wait_share:.0%} of the CPU time that it requests"
    return f"the CPU is busy: {share} ({format_load()}){hint}"


def format_load() -> str:
    """Returns the load of the machine in words: ``load 11.0 on 2 cores``."""
    cores = cpu_cores.usable_cores()
    return f"load {os.getloadavg()[0]:.1f} on {format_cores(cores)}"
