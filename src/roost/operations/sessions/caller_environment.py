"""The environment of the caller, without what belongs to the caller's own session."""

from __future__ import annotations

import os

from roost.base.system.worker_protocol import DEADLINE_VARIABLE, RENDEZVOUS_VARIABLE

_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", RENDEZVOUS_VARIABLE)
"""Variables of a caller that is itself one of several ranks."""


def callers_environment() -> dict[str, str]:
    """Returns the environment of the caller without the variables of a rank and without a deadline: the new
    process is no rank of the caller's session, and has a deadline of its own."""
    left_out = (*_OF_A_RANK, DEADLINE_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in left_out}
