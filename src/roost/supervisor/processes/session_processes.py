"""Adopting and killing the processes of a session. Called by the process that adopts its orphans: supervisor
or guard."""

# Standard library only

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Any

from roost.supervisor.processes import cgroup
from roost.supervisor.processes.process_tree import ReapedCallback, descendants, kill_tree
from roost.supervisor.session_spec import SessionSpec

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@functools.cache
def prctl() -> Any:
    """Returns the system call; ctypes is loaded at the first use, so that processes forked later have it
    already."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).prctl


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this kernel refuses PR_SET_CHILD_SUBREAPER, without which processes would leak")


def set_parent_death_signal(signum: int) -> None:
    """Has the kernel send this signal to this process when its parent ends."""
    if sys.platform == "linux":
        prctl()(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def kill_all(group: str | None, *, on_reaped: ReapedCallback | None = None) -> list[int]:
    """Kills the session's group and all descendants of this process; returns the pids that could not be
    killed.

    The tree is walked in any case: a process may have left the group.
    """
    if group is not None:
        cgroup.kill(group)
    kill_tree(os.getpid(), include_root=False, on_reaped=on_reaped)
    if group is not None:
        cgroup.remove(group)
        cgroup.remove_abandoned(group)
    return descendants(os.getpid())


def touch_leases(spec: SessionSpec) -> None:
    """Records in the modification time of the session's leases that its cards are in use until now
    (`roost.devices.usage_ledger`). Programs that delete old files from /tmp spare recently modified ones."""
    for fd in spec.lease_fds:
        with contextlib.suppress(OSError):  # a read-only disk: then less time counts as used
            os.utime(fd)
