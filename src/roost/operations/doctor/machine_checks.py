"""Checks of the host: cores, memory, shared memory, limits of processes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.system import cpu_cores, host_memory
from roost.base.text.byte_sizes import format_memory
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning

_MB, _GB = 1 << 20, 1 << 30
_SHARED_MEMORY = Path("/dev/shm")
_GOVERNORS = Path("/sys/devices/system/cpu")
_MEMINFO, _CORE_PATTERN = Path("/proc/meminfo"), Path("/proc/sys/kernel/core_pattern")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_MIN_SHARED_BYTES = _GB
"""Docker gives 64 MB, of which one batch of images takes as much."""
_MIN_FILES, _MIN_PROCESSES = 4096, 1024


@dataclass(frozen=True, kw_only=True)
class SharedMemoryFacts:
    """/dev/shm, and what the loader of the config requests."""

    size: int | None
    """Bytes; None: there is none."""
    free: int = 0
    num_workers: int = 0
    prefetch: int = 2


def read_shared_memory(subject: DoctorSubject) -> SharedMemoryFacts:
    """Reads the size of /dev/shm."""
    try:
        disk = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return SharedMemoryFacts(size=None)
    return SharedMemoryFacts(
        size=disk.f_blocks * disk.f_frsize,
        free=disk.f_bavail * disk.f_frsize,
        num_workers=subject.num_workers,
        prefetch=subject.prefetch,
    )


def judge_shared_memory(facts: SharedMemoryFacts) -> Iterator[Diagnosis]:
    """Whether loader workers have memory for their batches."""
    enlarge = "docker run --shm-size=8g (or --ipc=host); elsewhere: mount -o remount,size=8G /dev/shm"
    if facts.size is None:
        yield problem("there is no /dev/shm: a DataLoader with workers fails", f"mount one; {enlarge}")
        return
    sizes = f"{_memory(facts.free)} of {_memory(facts.size)} free"
    batches = facts.num_workers * facts.prefetch
    if facts.size < _MIN_SHARED_BYTES:
        yield problem(f"{sizes}: the workers of a DataLoader die of a bus error once it is full", enlarge)
    elif facts.free < max(_MIN_SHARED_BYTES // 2, facts.size // 10):
        yield warning(f"{sizes}: too little for loader workers", "remove what dead programs left in /dev/shm")
    elif batches:
        each = _memory(facts.free // batches)
        yield ok(f"{sizes}; {facts.num_workers} workers have up to {batches} batches there: {each} each")
    else:
        yield ok(sizes)


@dataclass(frozen=True, kw_only=True)
class LimitFacts:
    """The limits of this process; -1: none."""

    files: int
    most_files: int
    """To which it may raise the limit itself."""
    processes: int
    locked: int
    """Bytes of memory that it may lock."""
    core: int
    core_pattern: str = ""
    num_workers: int = 0


def read_limits(subject: DoctorSubject) -> LimitFacts:
    """Reads the limits that a run inherits from this shell."""
    files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    pattern = _CORE_PATTERN.read_text().strip() if _CORE_PATTERN.exists() else ""
    return LimitFacts(
        files=files,
        most_files=most_files,
        processes=resource.getrlimit(resource.RLIMIT_NPROC)[0],
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        core=resource.getrlimit(resource.RLIMIT_CORE)[0],
        core_pattern=pattern,
        num_workers=subject.num_workers,
    )


def judge_limits(facts: LimitFacts) -> Iterator[Diagnosis]:
    """Whether the limits of processes and files suffice for loader workers."""
    bad = False
    if 0 <= facts.files < _MIN_FILES:
        bad = True
        may = facts.most_files < 0 or facts.most_files >= _MIN_FILES
        fix = f"ulimit -n {_MIN_FILES if facts.most_files < 0 else min(65536, facts.most_files)}"
        yield warning(
            f"{facts.files:,} open files: a DataLoader keeps one for each tensor that waits",
            fix if may else "raise it in /etc/security/limits.conf (nofile)",
        )
    if 0 <= facts.processes < _MIN_PROCESSES:
        bad = True
        fix = "ulimit -u, or /etc/security/limits.conf (nproc); in a container --pids-limit"
        yield warning(f"{facts.processes:,} processes and threads of this user", fix)
    if facts.core != 0 and facts.core_pattern and not facts.core_pattern.startswith("|"):
        bad = True
        fix = "ulimit -c 0"
        yield warning("a crash writes its whole memory into a file (core), which may fill the disk", fix)
    if not bad:
        locked = "any" if facts.locked < 0 else _memory(facts.locked)
        yield ok(
            f"{_count(facts.files)} open files, {_count(facts.processes)} processes, {locked} locked memory"
        )


def _count(limit: int) -> str:
    return "any number of" if limit < 0 else f"{limit:,}"


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """The memory of the host in bytes; None: the kernel gives no number."""

    total: int | None
    available: int | None
    machine: int | None = None
    """The total of the machine, which a container may not use up."""
    swap: int = 0
    free_swap: int = 0


def read_memory(subject: DoctorSubject) -> MemoryFacts:
    """Reads the memory of the machine and of the control groups."""
    found = _read_meminfo()
    return MemoryFacts(
        total=host_memory.total_bytes(),
        available=host_memory.available_bytes(),
        machine=found.get("MemTotal"),
        swap=found.get("SwapTotal", 0),
        free_swap=found.get("SwapFree", 0),
    )


def _read_meminfo() -> dict[str, int]:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


def judge_memory(facts: MemoryFacts) -> Iterator[Diagnosis]:
    """Whether the host has memory left, and whether it swaps."""
    if facts.total is None or facts.available is None:
        yield warning("the system does not say how much memory it has", "see `free -h`")
        return
    text = f"{_memory(facts.available)} of {_memory(facts.total)} free"
    if facts.machine is not None and facts.total < facts.machine:
        text += f" (a control group's limit; the machine has {_memory(facts.machine)})"
    if facts.available < min(_GB, facts.total // 10):
        yield problem(
            f"{text}: the kernel kills processes when it is used up", "end programs: ps aux --sort=-rss"
        )
    elif facts.available < facts.total // 10:
        yield warning(text, "end programs: ps aux --sort=-rss; fewer data.num_workers")
    else:
        yield ok(text)
    used = facts.swap - facts.free_swap
    if used > max(_GB, facts.swap // 4):
        yield warning(f"{_memory(used)} of swap in use: what is there is slow", "end programs that are idle")


@dataclass(frozen=True, kw_only=True)
class CpuFacts:
    """The cores of this process and of the machine, and what is set for threads."""

    usable: int
    """By affinity and the quota of control groups."""
    machine: int
    load: float | None = None
    """Processes that compute or wait, on average over a minute."""
    governors: frozenset[str] = frozenset()
    threads: Mapping[str, str] = field(default_factory=dict)
    """OMP_NUM_THREADS and the like, as far as they are set."""
    num_workers: int = 0


def read_cpu(subject: DoctorSubject) -> CpuFacts:
    """Reads cores, load, governors and variables."""
    governors = _GOVERNORS.glob("cpu*/cpufreq/scaling_governor")
    return CpuFacts(
        usable=cpu_cores.usable_cores(),
        machine=os.cpu_count() or 1,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        governors=frozenset(file.read_text().strip() for file in governors),
        threads={name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
        num_workers=subject.num_workers,
    )


def judge_cpu(facts: CpuFacts) -> Iterator[Diagnosis]:
    """Whether cores are free, at full clock, and used by as many threads."""
    cores = "1 core" if facts.usable == 1 else f"{facts.usable} cores"
    text = cores if facts.usable == facts.machine else f"{cores} of {facts.machine} may be used"
    if facts.load is not None and facts.load > facts.machine + 1:
        fix = "see `top`; wait for the other programs, or use fewer threads and loader workers"
        yield warning(f"{text}; {facts.load:.1f} processes compute or wait for one", fix)
    else:
        yield ok(text + ("" if facts.load is None else f"; {facts.load:.1f} are busy"))
    if "powersave" in facts.governors and "performance" not in facts.governors:
        fix = "cpupower frequency-set -g performance, while a run matters"
        yield warning("the clock is governed by `powersave`: preparing data may be slower", fix)
    for name, value in facts.threads.items():
        if value.isdecimal() and int(value) > facts.usable:
            yield warning(
                f"{name}={value} on {cores}: the threads wait for each other", f"{name}={facts.usable}"
            )
    if facts.num_workers > facts.usable:
        yield warning(
            f"{facts.num_workers} loader workers on {cores}", f"data.num_workers: auto, or {facts.usable}"
        )


def _memory(count: int) -> str:
    return format_memory(count / _MB)
