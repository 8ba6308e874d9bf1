"""What a machine's owner has laid down, as it stands in the queue's settings."""

from __future__ import annotations

import msgspec

from roost.base.system import cpu_cores
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.history import RULES, Remembered


def read_rules(queue: Remembered) -> Rules:
    """Those of the settings, on what is usual: a task of the CPU for each core.

    Raises:
        Refused, RoostError: The queue cannot be read.
    """
    return msgspec.convert({"cores": cpu_cores.usable_cores(), **queue.settings().get(RULES, {})}, Rules)
