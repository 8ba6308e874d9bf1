"""The words that tell programs why a task waits: what stands before the colon of a reason."""

from __future__ import annotations

import functools

HELD, BEGIN, DEPENDENCY, SWEEP, CORES = "held", "begin", "dependency", "sweep", "cores"
CARDS, MEMORY, RESERVATION, RESERVED = "cards", "memory", "reservation", "reserved"
DRAINED, TROUBLE, FOREIGN = "drained", "trouble", "foreign"
IMPOSSIBLE = "impossible"
TAKEN, MACHINE, DISK, RACE = "taken", "machine", "disk", "race"
CLOSED = "closed"
"""Of tasks of others alone; so nobody reads it."""

CAPACITY_CODES = (CARDS, MEMORY, RESERVATION, RESERVED, DRAINED, TROUBLE, FOREIGN)
"""Of tasks that would start if there were room."""
DISPLAYED_CODES = (HELD, BEGIN, DEPENDENCY, SWEEP, CORES, *CAPACITY_CODES, IMPOSSIBLE, TAKEN, MACHINE, DISK, RACE)
"""All that people read."""

NEVER, NOR_THIS = ", so it never starts", ", nor does this one"
"""What a reason ends with whose task waits for what can come no more."""


def can_never_start(reason: str) -> bool:
    """Whether what a task waits for can come no more."""
    return reason_code(reason) == DEPENDENCY and reason.endswith((NEVER, NOR_THIS))


@functools.lru_cache(maxsize=1024)
def reason_code(reason: str) -> str:
    """The word of a reason; that of another text means nothing."""
    return reason.partition(":")[0]
