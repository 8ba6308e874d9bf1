"""What a machine's owner has laid down, as it stands in the queue's settings."""

from __future__ import annotations

import msgspec

from roost.base import cores
from roost.lab.policy.state import Rules
from roost.lab.remembered import RULES, Remembered


def rules_in(queue: Remembered) -> Rules:
    """Those of the settings, on what is usual: a task of the CPU for each core.

    Raises:
        Refused, RoostError: The queue cannot be read.
    """
    return msgspec.convert({"cores": cores.usable(), **queue.settings().get(RULES, {})}, Rules)
