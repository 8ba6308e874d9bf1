"""A control group (cgroup v2) for each session: a boundary that no process of a run can leave by forking.

It needs no setup, only a place below the own group where another may be created: so it works for root, on the
``unified`` mount of a hybrid system too, and in what systemd delegated to a user. Anywhere else `create`
returns None and the processes of a run are found by parent. Of the controllers only that of memory is used,
for a session with a limit, and only where the groups above have it switched on. The kernel's
``memory.peak`` is not either: it counts the page cache, so a run that reads a large data set would seem to
need that much.
"""

# Standard library only
# Not durable: files of the kernel

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator

_PREFIX = "roost-"
_TICK_SECONDS = 0.002
_NEW_SECONDS = 120.0
"""No session takes this long from the creation of its group to its first process there."""
_CLONE3, _INTO_CGROUP = 435, 0x200000000  # of linux/sched.h; the number is the same on all architectures


def cgroup_path(token: str) -> str | None:
    """Returns the path of a session's group, below the own group; None if there is no cgroup v2."""
    above = _own_cgroup()
    return None if above is None else f"{above}/{_PREFIX}{token}"


def can_create() -> bool:
    """Whether a session started by this process would get a group."""
    return _can_create_in(_own_cgroup())


def _can_create_in(above: str | None) -> bool:
    return above is not None and os.access(f"{above}/cgroup.procs", os.W_OK) and os.access(above, os.W_OK)


def create(token: str) -> str | None:
    """Creates an empty group for a session; returns its path, or None if that is impossible."""
    above = _own_cgroup()
    if not _can_create_in(above):
        return None
    path = f"{above}/{_PREFIX}{token}"
    try:
        os.mkdir(path)  # noqa: PTH102  - pathlib would delay each start by 3 ms
    except OSError:  # read-only, as in most containers, or another user's
        return None
    return path


def limit_memory(path: str, num_bytes: int) -> bool:
    """Limits the memory of an empty group: with more the kernel kills all of its processes. Returns False
    where the groups above do not allow it."""
    try:
        _write(f"{path}/memory.max", b"%d" % num_bytes)
        _write(f"{path}/memory.oom.group", b"1")
    except OSError:  # no such file: the controller is off
        return False
    return True


def fork_into(path: str) -> int | None:
    """Forks a child that is in the group from its first moment, without the wait of `join`; returns what
    `os.fork` would. None where that is impossible (a kernel before 5.7, a container that forbids it): fork,
    then `join`.

    Only for a process without threads and a child that calls `exec`: Python's hooks after a fork do not run.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        args = struct.pack("11Q", _INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
        pid = clone3()(args, len(args))
    finally:
        os.close(fd)
    return pid if pid >= 0 else None


@functools.cache
def clone3() -> Callable[[bytes, int], int]:
    """Returns the system call, loaded once, as `prctl.system_call`."""
    import ctypes

    syscall = ctypes.PyDLL(None).syscall  # PyDLL: the GIL stays held, and the child has it
    syscall.restype = ctypes.c_long
    return lambda args, size: int(syscall(ctypes.c_long(_CLONE3), args, ctypes.c_size_t(size)))


def join(path: str) -> bool:
    """Moves the calling process into the group. It waits 5 to 25 ms for the kernel, as do concurrent
    callers."""
    try:
        _write(f"{path}/cgroup.procs", b"0")
    except OSError:
        return False
    return True


def is_session_cgroup(path: str) -> bool:
    """Whether a path from a file can only be a group that `create` made: a path read from a file must not
    cause more than that to be killed."""
    mount, _ = _mount() or ("", "")
    name = path.rsplit("/", 1)[-1]
    inside = bool(mount) and path.startswith(f"{mount}/") and os.path.realpath(path) == path
    return inside and name.startswith(_PREFIX) and is_token(name.removeprefix(_PREFIX))


def is_token(text: str) -> bool:
    """Whether a text can be the token of a session: at least 64 random bits, so that no other text equals
    it."""
    return 16 <= len(text) <= 64 and not text.strip("0123456789abcdef")


def kill(path: str, *, timeout_seconds: float = 10.0) -> None:
    """Kills all processes in a group and in those below it, and waits until they are empty. Returns silently
    at the deadline, or if the group is missing. Zombies do not count."""
    deadline = time.monotonic() + timeout_seconds
    try:
        fd = os.open(f"{path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if _is_populated(fd):
            _kill_all(path, deadline)
            _wait_until_empty(fd, deadline)
    finally:
        os.close(fd)


def _kill_all(path: str, deadline: float) -> None:
    try:
        _write(f"{path}/cgroup.kill", b"1")
    except FileNotFoundError:  # a kernel before 5.14
        freeze_and_kill(path, deadline=deadline)
    except OSError:
        return


def freeze_and_kill(path: str, *, deadline: float) -> None:
    """For kernels without ``cgroup.kill``: freezes the group, so that no process forks, and kills all
    processes in it."""
    with contextlib.suppress(OSError):
        _write(f"{path}/cgroup.freeze", b"1")
    while (found := pids(path)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)


def pids(path: str) -> list[int]:
    """Returns the processes in a group and in those below it; empty if the group is missing."""
    found: list[int] = []
    for group in _groups(path):
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "rb") as file:
            found += map(int, file)
    return found


def remove(path: str) -> None:
    """Removes an empty group with those that the run created inside; one with processes stays."""
    try:
        os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        return
    except OSError:  # there are groups inside
        _remove_each(path)


def remove_abandoned(path: str) -> None:
    """Removes the empty groups next to this one that sessions have left whose guard and supervisor were
    killed. A group with processes stays, and a new one, into which a session is about to start."""
    above = os.path.dirname(path)  # noqa: PTH120
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            is_group = entry.name.startswith(_PREFIX) and is_token(entry.name.removeprefix(_PREFIX))
            if is_group and time.time() - entry.stat(follow_symlinks=False).st_mtime > _NEW_SECONDS:
                remove(entry.path)


def _remove_each(path: str) -> None:
    for group in _groups(path):
        try:
            os.rmdir(group)  # noqa: PTH106
        except OSError:
            continue


def _groups(path: str) -> Iterator[str]:
    """Yields the groups below before those above."""
    return (folder for folder, _, _ in os.walk(path, topdown=False))


def _is_populated(events_fd: int) -> bool:
    return b"populated 1" in os.pread(events_fd, 4096, 0)


def _wait_until_empty(events_fd: int, deadline: float) -> None:
    """Waits for POLLPRI, which the kernel raises at each change of ``cgroup.events``."""
    poller = select.poll()
    poller.register(events_fd, select.POLLPRI)
    while _is_populated(events_fd) and (remaining := deadline - time.monotonic()) > 0:
        poller.poll(remaining * 1000)


def _own_cgroup() -> str | None:
    """Returns the folder of this process's group."""
    found = _mount()
    if found is None:
        return None
    mount, root = found
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.rstrip("\n") for line in file]
    for line in lines:
        if line.startswith("0::/"):
            path = line.removeprefix("0::")
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return (mount + path[len(root.rstrip("/")) :]).rstrip("/")
    return None


@functools.cache
def _mount() -> tuple[str, str] | None:
    """Returns where the cgroup2 file system is mounted, and which of its folders is visible there."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.split()
                if fields[fields.index("-") + 1] == "cgroup2":
                    return fields[4], fields[3]
    except FileNotFoundError:
        return None  # no Linux: no /proc, and no cgroups
    return None


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
