"""The rules of the machine's owner, read from the settings of the queue."""

from __future__ import annotations

import msgspec

from roost.base.system import cpu_cores
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.history import RULES_KEY, QueueHistory


def read_rules(queue: QueueHistory) -> Rules:
    """Returns the rules in the settings, over the defaults; by default tasks may have all CPU cores.

    Raises:
        RoostError: The queue cannot be read.
    """
    return msgspec.convert({"cores": cpu_cores.usable_cores(), **queue.settings().get(RULES_KEY, {})}, Rules)
