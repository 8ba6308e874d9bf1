"""The limits of one session, enforced by its supervisor."""

# Standard library only

from __future__ import annotations

from typing import NamedTuple

from roost.base import limit_defaults


class SessionLimits(NamedTuple):
    """Times in seconds, sizes in bytes. A named tuple adds nothing to the time of a start, a dataclass 7
    ms."""

    wall_seconds: float | None = None
    """The time limit of the session; then it is asked to save and stop. None: no limit."""
    grace_seconds: float = limit_defaults.GRACE_SECONDS
    """How long the session may take to end after a limit has asked it to stop; then it is killed."""
    peer_seconds: float = 5.0
    """How long the other ranks may take to end after one has failed; then they are killed."""
    host_memory_mb: int | None = None
    """The memory of the machine that all processes of the session may use together; with more they are
    killed. None: no limit."""
    core_bytes: int = limit_defaults.CORE_MB * 2**20
    """The largest core file of each process of the session."""
    output_bytes: int = limit_defaults.OUTPUT_MB * 2**20
    """How much of the output file is kept: the first and the last half of this size."""
    stall_seconds: float | None = limit_defaults.STALL_MINUTES * 60
    """After how long without a step or output the session counts as stalled. None: never."""
    end_stalled: bool = False
    """Whether a stalled session is ended; otherwise the stall is only reported."""
