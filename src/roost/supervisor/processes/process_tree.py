"""Kills a process with all of its descendants, so that no process of a run is left.

A process group is no boundary: one ``setsid`` leaves it (``killpg`` left 34 of 35 processes alive in our
trial). So the tree is walked by parent, and a supervisor that is a child subreaper stays the ancestor even of
daemons that forked twice. Every process is stopped when it is found, before its children are read: a stopped
process cannot fork away from the walk.

Without ``/proc`` (macOS) only the process group of the root is killed: best effort, and a child that called
``setsid`` is missed.
"""

# Standard library only

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from roost.base.system import process_identity
from roost.base.system.process_identity import ProcessStat

ReapedCallback = Callable[[int, int], None]

_TICK_SECONDS = 0.005
_NUM_PIDFDS = 512


def descendants(pid: int, *, spared: Collection[int] = ()) -> list[int]:
    """Returns the living processes below ``pid``, without itself; empty where there is no ``/proc``.

    Args:
        pid: The root of the tree.
        spared: Processes that are left out.
    """
    return list(descendant_stats(pid, spared=spared))


def descendant_stats(pid: int, *, spared: Collection[int] = ()) -> dict[int, ProcessStat]:
    """Returns the same with what the kernel says of each process."""
    found = ((one, process_identity.read_stat(one)) for one in _walk(pid) if one not in spared)
    return {one: stat for one, stat in found if stat is not None and not stat.ended}


def kill_tree(
    root_pid: int,
    *,
    include_root: bool,
    on_reaped: ReapedCallback | None = None,
    timeout_seconds: float = 10.0,
    spared: Collection[int] = (),
) -> int:
    """Kills all processes below a process: stop all, kill all, reap, again until none is left.

    Children of the caller are reaped here. The caller itself is always spared.

    Args:
        root_pid: The root of the tree. The caller has made sure that the pid is not reused.
        include_root: Whether the root is killed too.
        on_reaped: Called with (pid, wait status) for each child reaped here: a status can be read only once.
        timeout_seconds: When to give up on processes that cannot die now (inside a dead network disk) or fork
            faster than they can be stopped; `descendants` lists what is left.
        spared: Processes that are left as they are.

    Returns:
        How many processes were killed. Processes of other users are skipped.
    """
    if sys.platform != "linux":
        return _kill_group(root_pid)
    deadline = time.monotonic() + timeout_seconds
    killed: set[int] = set()
    while True:
        found = _stop_all(root_pid, include_root=include_root, deadline=deadline, spared=spared)
        if not found:
            return len(killed)
        killed.update(pid for pid in found if _send(pid, signal.SIGKILL))
        _wait_until_ended(found, deadline)
        _reap(found, on_reaped)
        if time.monotonic() >= deadline:
            return len(killed)


def _walk(root_pid: int) -> Iterator[int]:
    """Yields each process before its children are read, so that the consumer can stop it first."""
    children_of = _children_lookup()
    pending = children_of(root_pid)
    while pending:
        pid = pending.pop()
        yield pid
        pending += children_of(pid)


def _children_lookup() -> Callable[[int], list[int]]:
    if os.access("/proc/thread-self/children", os.R_OK):
        return _children_by_kernel
    return _children_by_scan()


def _children_by_kernel(pid: int) -> list[int]:
    """Returns the children of every thread of ``pid``; exact once these threads are stopped."""
    found: list[int] = []
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            for thread in threads:
                with open(f"{thread.path}/children", "rb") as file:
                    found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return found  # it has ended; its children have another parent now and are found there
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """For kernels built without the ``children`` files: one scan of all processes of the machine."""
    children: dict[int, list[int]] = {}
    try:
        with os.scandir("/proc") as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    except FileNotFoundError:
        return lambda pid: []
    for pid in pids:
        stat = process_identity.read_stat(pid)
        if stat is not None:
            children.setdefault(stat.parent_pid, []).append(pid)
    return lambda pid: list(children.get(pid, ()))


def _stop_all(root_pid: int, *, include_root: bool, deadline: float, spared: Collection[int]) -> list[int]:
    """Stops the tree from its root on, repeatedly until a walk finds no new process."""
    stopped: dict[int, None] = {}
    if include_root and not _has_ended(root_pid) and _send(root_pid, signal.SIGSTOP):
        stopped[root_pid] = None
    while True:
        num_before = len(stopped)
        for pid in _walk(root_pid):
            is_new = pid not in stopped and pid not in spared
            if is_new and not _has_ended(pid) and _send(pid, signal.SIGSTOP):
                stopped[pid] = None
        if len(stopped) == num_before or time.monotonic() >= deadline:
            return list(stopped)


def _send(pid: int, signum: signal.Signals) -> bool:
    """Sends a signal to any process but this one; False if it has ended, or is another user's."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_ended(pid: int) -> bool:
    stat = process_identity.read_stat(pid)
    return stat is None or stat.ended


def _wait_until_ended(pids: Sequence[int], deadline: float) -> None:
    """Returns when all have ended, children or not, or at the deadline (monotonic seconds)."""
    for start in range(0, len(pids), _NUM_PIDFDS):
        _wait_for_batch(pids[start : start + _NUM_PIDFDS], deadline)


def _wait_for_batch(pids: Sequence[int], deadline: float) -> None:
    pidfds: list[int] = []
    try:
        for pid in pids:
            try:
                pidfds.append(os.pidfd_open(pid))
            except ProcessLookupError:
                continue
        _poll_pidfds(pidfds, deadline)
    except OSError:  # an old kernel, a container that forbids pidfds, or no descriptor left
        while not all(map(_has_ended, pids)) and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
    finally:
        for fd in pidfds:
            os.close(fd)


def _poll_pidfds(pidfds: Sequence[int], deadline: float) -> None:
    poller = select.poll()
    for fd in pidfds:
        poller.register(fd, select.POLLIN)
    num_running = len(pidfds)
    while num_running and (remaining := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(remaining * 1000):
            poller.unregister(fd)
            num_running -= 1


def _reap(pids: Sequence[int], on_reaped: ReapedCallback | None) -> None:
    for pid in pids:
        try:
            reaped, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # the child of another process
            continue
        if reaped and on_reaped is not None:
            on_reaped(reaped, status)


def _kill_group(root_pid: int) -> int:
    if root_pid in (os.getpid(), os.getpgrp()):
        return 0
    try:
        os.killpg(root_pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return 0
    return 1
