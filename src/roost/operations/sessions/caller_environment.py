"""The environment of whoever starts something."""

from __future__ import annotations

import os

from roost.base.system.worker_protocol import DEADLINE_VARIABLE, RENDEZVOUS_VARIABLE

_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", RENDEZVOUS_VARIABLE)
"""What the caller may have as one of several ranks."""


def callers_environment() -> dict[str, str]:
    """The environment of the caller, who may be one of several ranks and may have to end by some time: what
    is started is no rank, and has its own time."""
    left_out = (*_OF_A_RANK, DEADLINE_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in left_out}
