"""The state of the processes of a run: name, state, and the Python stacks where they are available.

The worker and all processes forked from it have a handler (`roost.worker.worker_signals`) that answers a
signal by writing the stacks of all threads into a pipe, even while the process hangs in C code that holds the
GIL. The signal would end any other process: so it is sent only to a process that handles it and holds this
pipe.

The handler reads the stacks of other threads without a lock. A thread that starts or returns at that moment
can crash its process (asked without a pause while 41 threads start: 7 of 104 times). So a process is asked
when it has stalled, not for a mere look at it.
"""

# Standard library only

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import NamedTuple

from roost.base.system import process_identity
from roost.base.system.worker_protocol import STACKS_SIGNAL

_ANSWER_SECONDS, _QUIET_SECONDS, _ALL_SECONDS = 1.0, 0.1, 8.0
_MOST_BYTES = 1 << 20
_MOST_PROCESSES = 100


class ProcessSample(NamedTuple):
    """One process; ``stacks`` is empty if the process has no handler or did not answer."""

    pid: int
    name: str
    state: str
    kernel_function: str
    stacks: bytes

    def format(self) -> bytes:
        """Returns the process's paragraph in the file of stacks."""
        waits = f", waits in {self.kernel_function}" if self.kernel_function else ""
        header = f"--- process {self.pid} ({self.name}), state {self.state}{waits}\n".encode()
        return header + (self.stacks or b"    no Python stacks\n")


def sample_processes(pids: list[int], *, read_fd: int, workers_fd: int) -> list[ProcessSample]:
    """Samples one process after the other, for some seconds at most.

    Args:
        pids: The processes; of more than a hundred only the first hundred.
        read_fd: The read end of the pipe, not blocking.
        workers_fd: The number of the write end in the workers.
    """
    deadline = time.monotonic() + _ALL_SECONDS
    pipe = _read_link(f"/proc/self/fd/{read_fd}")
    samples = []
    for pid in pids[:_MOST_PROCESSES]:
        stat = process_identity.read_stat(pid)
        if stat is None or stat.ended:
            continue
        # A paused process would answer only after it continues, when no reader waits any more.
        answers = (
            stat.state not in "Tt"
            and _handles_stacks_signal(pid)
            and _read_link(f"/proc/{pid}/fd/{workers_fd}") == pipe
        )
        stacks = _request_stacks(pid, read_fd, deadline) if answers else b""
        samples.append(
            ProcessSample(pid, _read(f"/proc/{pid}/comm"), stat.state, _kernel_function(pid), stacks)
        )
    return samples


def _handles_stacks_signal(pid: int) -> bool:
    """Whether the process has a handler for the signal, and does not block it in its main thread."""
    masks = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/status").splitlines() if ":" in line)
    bit = 1 << (STACKS_SIGNAL - 1)
    return bool(int(masks.get("SigCgt", "0"), 16) & bit) and not int(masks.get("SigBlk", "0"), 16) & bit


def _request_stacks(pid: int, fd: int, deadline: float) -> bytes:
    read_available(fd)
    try:
        os.kill(pid, STACKS_SIGNAL)
    except (ProcessLookupError, PermissionError):
        return b""
    found = bytearray()
    wait = _ANSWER_SECONDS
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    # An answer has no end mark: it has ended when nothing more comes.
    while (remaining := min(wait, deadline - time.monotonic())) > 0 and poller.poll(remaining * 1000):
        piece = read_available(fd)
        if not piece:
            break
        found += piece[: _MOST_BYTES - len(found)]
        wait = _QUIET_SECONDS
    return bytes(found)


def read_available(fd: int) -> bytes:
    """Reads what is in the pipe; a late answer must not block its writer for ever."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def _kernel_function(pid: int) -> str:
    """Returns the kernel function in which the process sleeps."""
    where = _read(f"/proc/{pid}/wchan").strip()
    return "" if where == "0" else where


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
