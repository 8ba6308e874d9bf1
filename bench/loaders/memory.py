"""Measures the private and shared memory of a loader and its workers."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import NamedTuple

from .candidates import Candidate
from .cases import Case

NUM_BATCHES = 60


class Memory(NamedTuple):
    """Memory in MB (10^6 bytes)."""

    own_mb: float
    """Pss_Anon of all processes: heaps. Mapped files, which other programs share, are left out."""
    shared_mb: float
    """Pss_Shmem of all processes, and open but unmapped shared memory: torch's batches in flight."""


def peak(case: Case, candidate: Candidate) -> Memory:
    """Returns the peak over some batches, without the memory that this process had before."""
    before = _now()
    own, shared = [], []
    with candidate.open(case) as feed:
        for batch in itertools.islice(feed.begin(), NUM_BATCHES):
            case.check(feed.value(batch))
            found = _now()
            own.append(found.own_mb)
            shared.append(found.shared_mb)
    return Memory(max(own) - before.own_mb, max(shared) - before.shared_mb)


def _now() -> Memory:
    pids = [os.getpid(), *_children()]
    own = sum(_kb(pid, "Pss_Anon:") for pid in pids) * 1024
    mapped = sum(_kb(pid, "Pss_Shmem:") for pid in pids) * 1024
    return Memory(own / 1e6, (mapped + _unmapped(pids)) / 1e6)


def _children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


def _kb(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def _unmapped(pids: list[int]) -> int:
    mapped = {
        int(line.split()[4]) for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
    }
    size_by_inode: dict[int, int] = {}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if str(link.readlink()).startswith(("/dev/shm/", "/memfd:")):
                    found = link.stat()
                    size_by_inode[found.st_ino] = found.st_blocks * 512
    return sum(size for inode, size in size_by_inode.items() if inode not in mapped)
