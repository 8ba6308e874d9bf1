"""``notices``: who is told when tasks end, fail or stall; and whether that arrives."""

from __future__ import annotations

from typing import NamedTuple

from roost.lab.notices import kinds, message, sending, settings


class Told(NamedTuple):
    """One receiver."""

    name: str
    kind: str
    place: str
    """Without what is secret."""
    why_not: str | None = None
    """Why the trial did not arrive; empty if it did, None without one."""


class Notices(NamedTuple):
    """What is set."""

    file: str
    events: list[str]
    least_minutes: float
    receivers: list[Told]


def notices(*, test: bool = False) -> Notices:
    """What is set; nothing that is secret is in it.

    Args:
        test: Send one notice to each receiver.

    Raises:
        NotFound: Nothing is set.
        Refused: Others may read the file.
        ConfigError: It does not mean anything.
    """
    file = kinds.path()
    asked = settings.read(file)
    told = []
    for name, one in asked.receivers.items():
        why_not = sending.deliver(one, message.trial(), pauses=()) if test else None
        told.append(Told(name, one.kind, one.place, why_not))
    return Notices(str(file), list(asked.events), asked.least_minutes, told)
