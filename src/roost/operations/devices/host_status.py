"""The cores and the memory of the host: how much tasks may have, how much they have, and what is in use."""

from __future__ import annotations

import os
from collections.abc import Iterable

from roost.base.system import host_memory
from roost.lab.policy.host_share import HostShare
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import Task
from roost.operations.devices.device_list import HostStatus


def host_status(rules: Rules, live: Iterable[Task]) -> HostStatus:
    """Returns the state of the host now.

    Args:
        rules: How much of it tasks may have.
        live: The live tasks of this lab.
    """
    shares = [HostShare.from_need(task.need) for task in live]
    total, free = host_memory.total_bytes(), host_memory.available_bytes()
    return HostStatus(
        cores=rules.cores,
        cores_given=sum(share.cores for share in shares),
        busy_cores=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        memory_mb=rules.host_memory_mb,
        memory_given_mb=sum(share.mb for share in shares),
        memory_used_mb=None if total is None or free is None else max(0, total - free) // 2**20,
        total_memory_mb=None if total is None else total // 2**20,
    )
