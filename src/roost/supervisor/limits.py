"""What a session may use before its supervisor steps in."""

# Standard library only

from __future__ import annotations

from typing import NamedTuple


class SessionLimits(NamedTuple):
    """Times in seconds, sizes in bytes. Named tuples cost a start nothing, dataclasses 7 ms."""

    wall_seconds: float | None = None
    """The session's time; then it is asked to save and end. None: no limit."""
    grace_seconds: float = 60.0
    """How long it may take to end once a limit has asked it to; then it is killed."""
    peer_seconds: float = 5.0
    """How long the other ranks may take to end by themselves once one has failed; then they are killed."""
    core_bytes: int = 0
    """Largest core file of each of its processes."""
    output_bytes: int = 200 * 2**20
    """How much of the output file stays: the first and the last half of this."""
    stall_seconds: float | None = 1800.0
    """How long it may take no step and print nothing before that is looked into. None: never."""
    end_stalled: bool = False
    """Whether a stalled run is ended; otherwise it is only reported."""
