"""The rules of the machine's owner, read from the settings of the queue."""

from __future__ import annotations

import msgspec

from roost.base.system import cpu_cores, host_memory
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.history import RULES_KEY, QueueHistory


def read_rules(queue: QueueHistory) -> Rules:
    """Returns the rules in the settings, over the defaults; by default tasks may have the whole host.

    Raises:
        RoostError: The queue cannot be read.
    """
    return msgspec.convert({**default_host(), **queue.settings().get(RULES_KEY, {})}, Rules)


def default_host() -> dict[str, int | None]:
    """Returns the rules about the host where none are set: the cores and the memory that it has."""
    memory = host_memory.total_bytes()
    memory_mb = None if memory is None else memory // 2**20
    return {"cores": cpu_cores.usable_cores(), "host_memory_mb": memory_mb}
