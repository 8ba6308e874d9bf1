"""Causes in loader workers of torch's DataLoader: killed, out of shared memory, out of file descriptors.

roost explains the death of its own loader workers in `roost.train.data.workers.worker_errors`.
"""

from __future__ import annotations

import os
import re
import resource

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, gib, rule_by_text

SHARED = "/dev/shm"


def _shared_memory() -> str:
    """Describes the free and total size of shared memory now."""
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return f"there is no {SHARED}"
    free, size = (gib(blocks * found.f_frsize) for blocks in (found.f_bavail, found.f_blocks))
    return f"{SHARED} has {free} free of {size} now"


_ENLARGE = (
    "set num_workers=0 in that DataLoader, or use smaller batches; in docker: --shm-size=8g (or --ipc=host)"
)
_FULL = re.compile(
    r"unable to (?:write to|resize|allocate shared memory\(shm\) for) file </\S+>: No space left on device"
)
_BUS = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Bus error")


def shared_memory_full(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """No space in shared memory, through whose files loader workers pass their batches."""
    if not record.is_a("RuntimeError"):
        return None
    if _FULL.match(record.text):
        return Cause(f"shared memory is full: a batch did not fit into it ({_shared_memory()})", _ENLARGE)
    if _BUS.match(record.text):
        description = (
            f"a loader worker died of a bus error: probably shared memory is too small ({_shared_memory()})"
        )
        return Cause(description, _ENLARGE)
    return None


def too_many_files(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """The limit of open files, which includes batches in shared memory."""
    is_known = record.is_a("OSError") and record.text.startswith("[Errno 24] ")
    is_loader = record.is_a("RuntimeError") and record.text.startswith(
        ("Too many open files. Communication with the workers", "received 0 items of ancdata")
    )
    if not is_known and not is_loader:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    remedy = (
        f"run `ulimit -n {hard}` before roost is started"
        if hard > soft
        else "set a higher limit of open files"
    )
    return Cause(
        f"too many files are open at once: the limit is {soft} (ulimit -n)",
        f"{remedy}; close the files that the dataset opens, or use fewer data.num_workers",
    )


CAUSES: tuple[CauseRule, ...] = (
    shared_memory_full,
    too_many_files,
    rule_by_text(
        "RuntimeError",
        r"DataLoader worker \(pid (\d+)\) is killed by signal: Killed",
        "loader worker {0} was killed from outside, probably by the kernel because memory ran out",
        "use fewer num_workers in that DataLoader or smaller batches; `dmesg` lists the killed processes",
    ),
    rule_by_text(
        "RuntimeError",
        r"DataLoader worker \(pid (\d+)\) is killed by signal: (Segmentation fault|Aborted)",
        "loader worker {0} crashed in compiled code: {1}",
        "set num_workers=0 in that DataLoader to see where; often a library that cannot be forked, or a "
        "damaged sample",
    ),
    rule_by_text(
        "RuntimeError",
        r"DataLoader worker \(pid (\d+)\) exited unexpectedly with exit code (\d+)",
        "loader worker {0} ended itself with exit code {1} (sys.exit or os._exit while it read a sample)",
        "set num_workers=0 in that DataLoader to see where",
    ),
    rule_by_text(
        "RuntimeError",
        r"unable to mmap \d+ bytes from file </torch_\S+>: Cannot allocate memory",
        "probably too many tensors are kept in shared memory one by one (the kernel's vm.max_map_count)",
        "copy the tensors that you keep of a batch with .clone(), or set num_workers=0 in that DataLoader",
    ),
)
