"""The CPU cores that this process may use (standard library only)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from roost.base.system import cgroup_membership


def usable_cores(*, proc: Path = cgroup_membership.PROC) -> int:
    """Returns the number of whole cores that this process may use at the same time, within its CPU affinity
    and the quotas of its control groups; at least 1."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([most, *_quotas(proc)])))


def choose_cores(count: int, *, taken: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Returns that many cores of this process, of which as few as possible are taken; empty for all of its
    cores, or where a process cannot be bound to some.

    Args:
        count: How many.
        taken: The cores of each process, or task, that is bound to some.
    """
    usable = usable_core_ids()
    if count >= len(usable):
        return ()
    holders = Counter(core for cores in taken for core in set(cores))
    return tuple(sorted(sorted(usable, key=lambda core: (holders[core], core))[:count]))


def usable_core_ids() -> list[int]:
    """Returns the numbers of the cores to which this process is bound; empty where that is not known."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


def bound_cores(*, processes: Path = Path("/proc")) -> set[frozenset[int]]:
    """Returns the sets of cores to which processes of this machine are bound: those that are a true part of
    the cores of this process. Kernel threads, which have no memory, do not count."""
    own, found = set(usable_core_ids()), set[frozenset[int]]()
    for status in processes.glob("[0-9]*/status"):
        with suppress(OSError, ValueError):  # it has ended, or is of another system
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if "VmRSS" in fields:
                found.add(frozenset(_parse_cores(fields["Cpus_allowed_list"])) & own)
    return {cores for cores in found if cores and cores < own}


def _parse_cores(text: str) -> Iterator[int]:
    """Yields the numbers of ``0-3,8``."""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _quotas(proc: Path) -> Iterator[float]:
    """Yields the quotas, in cores, of the process's control groups and of their ancestors."""
    for folder in cgroup_membership.group_folders("cpu", proc=proc):
        quota = _version_2(folder / "cpu.max") or _version_1(folder)
        if quota:
            yield quota


def _version_2(file: Path) -> float | None:
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # "max": no quota
        return None


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    except (OSError, ValueError):
        return None
