"""The memory of the host, and how much of it this process may still allocate (standard library only)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from roost.base.system import cgroup_membership

_MEMINFO = Path("/proc/meminfo")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The files with the limit and the use of a control group, in version 2 and in version 1."""
_RECLAIMABLE = ("active_file", "inactive_file", "slab_reclaimable")
"""Memory that counts as used, but which the kernel frees when a process needs it: mostly the file cache,
which fills every limit while data is read from a disk."""


def available_bytes(*, meminfo: Path = _MEMINFO, proc: Path = cgroup_membership.PROC) -> int | None:
    """Returns the bytes that can be allocated without swapping, within the machine's memory and the limits of
    the control groups; None if the kernel gives no numbers."""
    found = [
        _machine_bytes(meminfo, "MemAvailable"),
        *map(_group_bytes, cgroup_membership.group_folders("memory", proc=proc)),
    ]
    return min((free for free in found if free is not None), default=None)


def total_bytes(*, meminfo: Path = _MEMINFO, proc: Path = cgroup_membership.PROC) -> int | None:
    """Returns the bytes of the machine's memory, within the limits of the control groups; None if the kernel
    gives no number."""
    groups = cgroup_membership.group_folders("memory", proc=proc)
    found = [_machine_bytes(meminfo, "MemTotal"), *(_limit_bytes(folder) for folder in groups)]
    return min((size for size in found if size is not None), default=None)


def _machine_bytes(meminfo: Path, name: str) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) for line in lines if line.startswith(f"{name}:")]
    return sizes[0] * 1024 if sizes else None


def _limit_bytes(folder: Path) -> int | None:
    for limit, _ in _FILES:
        with suppress(OSError, ValueError):  # "max": no limit
            return int((folder / limit).read_text())
    return None


def _group_bytes(folder: Path) -> int | None:
    left = (_unused_bytes(folder / most, folder / used) for most, used in _FILES)
    found = next((free for free in left if free is not None), None)
    return None if found is None else max(0, found + _reclaimable_bytes(folder / "memory.stat"))


def _unused_bytes(most: Path, used: Path) -> int | None:
    try:
        return int(most.read_text()) - int(used.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


def _reclaimable_bytes(file: Path) -> int:
    try:
        found = {name: int(size) for name, size in map(str.split, file.read_text().splitlines())}
    except (OSError, ValueError):
        return 0
    # In version 1 the sums that include the groups below have separate names.
    return sum(found.get(f"total_{name}", found.get(name, 0)) for name in _RECLAIMABLE)
