"""The end of everything that a session started. Called by whoever adopts its orphans: supervisor or guard."""

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
    """The system call; ctypes is loaded at the first use, and who is forked after that has it already."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).prctl


def adopt_orphans() -> None:
    """Makes us the parent of every descendant whose own parent ends.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this kernel refuses PR_SET_CHILD_SUBREAPER, without which processes would leak")


def set_parent_death_signal(signum: int) -> None:
    """Has the kernel send this to us when our parent ends."""
    if sys.platform == "linux":
        prctl()(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def kill_all(group: str | None, *, on_reaped: ReapedCallback | None = None) -> list[int]:
    """Kills the session's group and everything below us; gives what could not be ended.

    The walk is made in any case: a process may have left the group.
    """
    if group is not None:
        cgroup.kill(group)
    kill_tree(os.getpid(), include_root=False, on_reaped=on_reaped)
    if group is not None:
        cgroup.remove(group)
    return descendants(os.getpid())


def touch_leases(spec: SessionSpec) -> None:
    """Leaves on the session's leases that its cards were in use until now (`roost.devices.usage_ledger`);
    and what
    sweeps old files out of /tmp sees that these are none."""
    for fd in spec.lease_fds:
        with contextlib.suppress(OSError):  # a disk that may only be read: then less counts as used
            os.utime(fd)
