"""Killing the processes of a session. Called by the process that adopts its orphans: supervisor or guard."""

# Standard library only

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from roost.supervisor.processes import cgroup
from roost.supervisor.processes.process_tree import ReapedCallback, descendants, kill_tree
from roost.supervisor.session_spec import SessionSpec


def kill_all(
    group: str | None, *, on_reaped: ReapedCallback | None = None, spared: Collection[int] = ()
) -> list[int]:
    """Kills the session's group and all descendants of this process but ``spared``; returns the pids that
    could not be killed.

    The tree is walked in any case: a process may have left the group.
    """
    if group is not None:
        cgroup.kill(group)
    kill_tree(os.getpid(), include_root=False, on_reaped=on_reaped, spared=spared)
    if group is not None:
        cgroup.remove(group)
        cgroup.remove_abandoned(group)
    return descendants(os.getpid(), spared=spared)


def touch_leases(spec: SessionSpec) -> None:
    """Records in the modification time of the session's leases that its cards are in use until now
    (`roost.devices.usage_ledger`). Programs that delete old files from /tmp spare recently modified ones."""
    for fd in spec.lease_fds:
        with contextlib.suppress(OSError):  # a read-only disk: then less time counts as used
            os.utime(fd)
