"""How much memory this process may still take (standard library only)."""

from __future__ import annotations

from pathlib import Path

from roost.base.system import cgroup_membership

_MEMINFO = Path("/proc/meminfo")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Of version 2 and of version 1: the limit and the use of a control group."""
_RECLAIMABLE = ("active_file", "inactive_file", "slab_reclaimable")
"""Counted as used, and given back by the kernel when somebody needs it: the cache of files above all, which
fills any limit where data are read from a disk."""


def available_bytes(*, meminfo: Path = _MEMINFO, proc: Path = cgroup_membership.PROC) -> int | None:
    """What can be had without swapping: the machine's, or what the control groups leave of it; None when no
    file tells."""
    found = [
        _machine_bytes(meminfo),
        *map(_group_bytes, cgroup_membership.group_folders("memory", proc=proc)),
    ]
    return min((free for free in found if free is not None), default=None)


def _machine_bytes(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] * 1024 if sizes else None


def _group_bytes(folder: Path) -> int | None:
    left = (_unused_bytes(folder / most, folder / used) for most, used in _FILES)
    found = next((free for free in left if free is not None), None)
    return None if found is None else max(0, found + _reclaimable_bytes(folder / "memory.stat"))


def _unused_bytes(most: Path, used: Path) -> int | None:
    try:
        return int(most.read_text()) - int(used.read_text())
    except (OSError, ValueError):  # "max" means that there is no limit
        return None


def _reclaimable_bytes(file: Path) -> int:
    try:
        found = {name: int(size) for name, size in map(str.split, file.read_text().splitlines())}
    except (OSError, ValueError):
        return 0
    # Version 1 tells those of the groups below under names of their own.
    return sum(found.get(f"total_{name}", found.get(name, 0)) for name in _RECLAIMABLE)
