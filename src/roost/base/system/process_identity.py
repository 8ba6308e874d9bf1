"""The identity of a process, so that an ended process is never confused with another one (standard library
only).

Pids are used again, on a busy machine within seconds. A process is identified by three things: the boot of
its machine, its pid, and the clock tick at which it started (field 22 of ``/proc/<pid>/stat``). On macOS,
which has no ``/proc``, only the pid is compared: best effort.
"""

from __future__ import annotations

import functools
import os
import signal
from typing import NamedTuple

_MAX_PID = 2**31 - 1
"""No pid is larger, whatever a file says; numbers below 1 address several processes."""


class ProcessStat(NamedTuple):
    """The fields of ``/proc/<pid>/stat`` that roost uses."""

    state: str
    parent_pid: int
    num_threads: int
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Whether only the exit status of the process remains. A zombie whose other threads still run has not
        ended."""
        return self.state in "ZX" and self.num_threads <= 1


def read_stat(pid: int) -> ProcessStat | None:
    """Reads ``/proc/<pid>/stat``; None if there is no such process, or no ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself contain spaces and parentheses: count from the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[17]), int(fields[19]))


def start_ticks(pid: int) -> int | None:
    """Returns when the process started, in clock ticks since boot; None if there is no such process, or no
    ``/proc``."""
    stat = read_stat(pid)
    return None if stat is None else stat.start_ticks


@functools.cache
def boot_id() -> str:
    """Returns the identifier of this boot of this machine; empty if the kernel has none (macOS)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def is_alive(pid: int, started: int | None, boot: str) -> bool:
    """Whether exactly this process still runs on this machine.

    For a process of another machine the result is False, because its boot id differs, and means nothing.
    Compare the host first.

    Args:
        pid: The pid.
        started: The process's `start_ticks`; if None (unknown), only the pid is compared.
        boot: The `boot_id` when both were read.
    """
    if boot != boot_id() or not 0 < pid <= _MAX_PID:
        return False
    if started is None:
        return _exists(pid)
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == started and not stat.ended


def send_signal(signum: int, pid: int, started: int | None, boot: str) -> bool:
    """Sends a signal to exactly this process; returns False if the process has ended. The other arguments are
    those of `is_alive`.

    Raises:
        PermissionError: The process belongs to another user.
    """
    if not 0 < pid <= _MAX_PID:
        return False
    if not hasattr(os, "pidfd_open"):  # macOS: a moment remains in which the pid could be reused
        if is_alive(pid, started, boot):
            os.kill(pid, signum)
            return True
        return False
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Checked after the descriptor was opened: from here on it refers to this process or to none.
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
    except PermissionError:  # the process of another user
        return True
    return True
