"""How many CPU cores this process may use (standard library only)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from roost.base.system import cgroup_membership


def usable_cores(*, proc: Path = cgroup_membership.PROC) -> int:
    """Cores that this process may use at once: what its affinity and the quotas of its control groups leave
    of the machine's, in full cores, 1 at least."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([most, *_quotas(proc)])))


def _quotas(proc: Path) -> Iterator[float]:
    """In cores, of each group that the process is in and of those above."""
    for folder in cgroup_membership.group_folders("cpu", proc=proc):
        quota = _version_2(folder / "cpu.max") or _version_1(folder)
        if quota:
            yield quota


def _version_2(file: Path) -> float | None:
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # "max" means none
        return None


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    except (OSError, ValueError):
        return None
