"""Who a process is, so that one that is gone is never taken for another (standard library only).

Pids recur, on a busy machine within seconds. A process is known by three things: the boot of its machine,
its pid, and the clock tick at which it started (field 22 of ``/proc/<pid>/stat``). On macOS, which has no
``/proc``, only the pid is compared: best effort.
"""

from __future__ import annotations

import functools
import os
import signal
from typing import NamedTuple

_MAX_PID = 2**31 - 1
"""No pid is larger, whatever a file may say; and those below 1 mean several processes."""


class ProcessStat(NamedTuple):
    """What roost needs of ``/proc/<pid>/stat``."""

    state: str
    parent_pid: int
    num_threads: int
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Only the exit status is left of it. A zombie whose other threads still run has not ended."""
        return self.state in "ZX" and self.num_threads <= 1


def read_stat(pid: int) -> ProcessStat | None:
    """The process's line in ``/proc``; None if there is no such process, or no ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses: count from the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[17]), int(fields[19]))


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is not there, or ``/proc`` is not."""
    stat = read_stat(pid)
    return None if stat is None else stat.start_ticks


@functools.cache
def boot_id() -> str:
    """Names this boot of this machine; empty where the kernel does not tell (macOS)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def is_alive(pid: int, started: int | None, boot: str) -> bool:
    """Whether exactly this process still runs on this machine.

    It tells nothing about a process of another machine: its boot differs, so the answer is False. Compare
    the host first.

    Args:
        pid: Its pid.
        started: Its `start_ticks`; None where they were not known, then the pid alone decides.
        boot: The `boot_id` under which both were read.
    """
    if boot != boot_id() or not 0 < pid <= _MAX_PID:
        return False
    if started is None:
        return _exists(pid)
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == started and not stat.ended


def send_signal(signum: int, pid: int, started: int | None, boot: str) -> bool:
    """Sends a signal to exactly this process; False if it is gone.

    Args:
        signum: The signal.
        pid: As in `is_alive`, like the rest.

    Raises:
        PermissionError: It is another user's.
    """
    if not 0 < pid <= _MAX_PID:
        return False
    if not hasattr(os, "pidfd_open"):  # macOS: an instant in which the pid could be reused is left
        if is_alive(pid, started, boot):
            os.kill(pid, signum)
            return True
        return False
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Looked at once the descriptor is held: from here on it means this process or none.
        if not is_alive(pid, started, boot):
            return False
        signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
