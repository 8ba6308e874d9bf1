"""The number of CPU cores that this process may use (standard library only)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from roost.base.system import cgroup_membership


def usable_cores(*, proc: Path = cgroup_membership.PROC) -> int:
    """Returns the number of whole cores that this process may use at the same time, within its CPU affinity
    and the quotas of its control groups; at least 1."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([most, *_quotas(proc)])))


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
