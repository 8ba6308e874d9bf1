"""The codes of wait reasons: the word before the colon of a reason, by which programs recognise it."""

from __future__ import annotations

import functools

HELD, BEGIN, DEPENDENCY, SWEEP = "held", "begin", "dependency", "sweep"
CORES, HOST_MEMORY = "cores", "host"
CARDS, MEMORY, RESERVATION, RESERVED = "cards", "memory", "reservation", "reserved"
DRAINED, TROUBLE, FOREIGN = "drained", "trouble", "foreign"
IMPOSSIBLE = "impossible"
TAKEN, MACHINE, DISK, RACE = "taken", "machine", "disk", "race"
CLOSED = "closed"
"""Occurs only for tasks of other queues, so it is never displayed."""

CONDITION_CODES = (HELD, BEGIN, DEPENDENCY, SWEEP, IMPOSSIBLE)
"""The codes of tasks that would not start, whatever capacity was free."""
CAPACITY_CODES = (CARDS, MEMORY, RESERVATION, RESERVED, DRAINED, TROUBLE, FOREIGN)
"""The codes of tasks that would start if there was enough free capacity."""
DISPLAYED_CODES = (
    HELD,
    BEGIN,
    DEPENDENCY,
    SWEEP,
    CORES,
    HOST_MEMORY,
    *CAPACITY_CODES,
    IMPOSSIBLE,
    TAKEN,
    MACHINE,
    DISK,
    RACE,
)
"""All codes that users see."""


@functools.lru_cache(maxsize=1024)
def reason_code(reason: str) -> str:
    """Returns the code of a wait reason; meaningless for any other text."""
    return reason.partition(":")[0]
