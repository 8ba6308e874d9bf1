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

ROOM = (CARDS, MEMORY, RESERVATION, RESERVED, DRAINED, TROUBLE, FOREIGN)
"""Of tasks that would start if there were room."""
TOLD = (HELD, BEGIN, DEPENDENCY, SWEEP, CORES, *ROOM, IMPOSSIBLE, TAKEN, MACHINE, DISK, RACE)
"""All that people read."""

NEVER, NOR_THIS = ", so it never starts", ", nor does this one"
"""What a reason ends with whose task waits for what can come no more."""


def is_hopeless(reason: str) -> bool:
    """Whether what a task waits for can come no more."""
    return word_of(reason) == DEPENDENCY and reason.endswith((NEVER, NOR_THIS))


@functools.lru_cache(maxsize=1024)
def word_of(reason: str) -> str:
    """The word of a reason; that of another text means nothing."""
    return reason.partition(":")[0]
