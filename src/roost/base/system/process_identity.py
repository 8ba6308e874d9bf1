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
    cpu_ticks: int = 0
    """The processor time of the process and of its descendants that were waited for, in clock ticks."""

    @property
    def cpu_seconds(self) -> float:
        """The same in seconds."""
        return self.cpu_ticks / os.sysconf("SC_CLK_TCK")

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
    cpu_ticks = sum(map(int, fields[11:15]))
    return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[17]), int(fields[19]), cpu_ticks)


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


def has_open(pid: int, path: str) -> bool:
    """Whether a process has a file open, which no text in a file can claim: a lock, for example, that only
    the processes of one run or one daemon have. True where the system does not show it (macOS).

    Args:
        pid: The pid.
        path: The file itself, not a link to it.

    Raises:
        PermissionError: The process belongs to another user.
    """
    folder = f"/proc/{pid}/fd"
    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112  - pathlib is not loaded in every process
        return True
    try:
        file = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        file = None  # removed, perhaps with its folder, while the process has it
    try:
        numbers = os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return False
    for number in sorted(numbers, key=int):  # a lock is among the first files that a process opens
        try:
            if file is None and os.readlink(f"{folder}/{number}") == f"{path} (deleted)":  # noqa: PTH115
                return True
            if file is not None and os.path.samestat(os.stat(f"{folder}/{number}"), file):  # noqa: PTH116
                return True
        except (FileNotFoundError, ProcessLookupError):  # closed meanwhile
            continue
    return False


def send_signal(signum: int, pid: int, started: int | None, boot: str, *, holding: str | None = None) -> bool:
    """Sends a signal to exactly this process; returns False if the process has ended. The other arguments are
    those of `is_alive`.

    Args:
        holding: A file that the process must have open (`has_open`), else it is another process than the
            record says, and gets no signal; None: it is known to be the one.

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
        if not is_alive(pid, started, boot) or (holding is not None and not has_open(pid, holding)):
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
