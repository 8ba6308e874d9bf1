"""What the cards, the processes and the host of a session did, as its record says, or its rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from roost.operations.reading import package_schema
from roost.package.results import system_summary
from roost.package.sessions import Session

IDLE_PERCENT = 10.0
"""A card that computed for less of the time was idle."""
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class CardUseDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A card of a session. None: not measured."""

    id: str
    name: str = ""
    total_mb: _Number | None = None
    utilization: _Number | None = None
    """The mean, in per cent of the time; likewise ``throttled``, in which its clock was lowered."""
    peak_memory_mb: _Number | None = None
    power: _Number | None = None
    """The mean, in W."""
    temperature: float | None = None
    """The highest, in degrees Celsius."""
    throttled: _Number | None = None
    energy_kwh: _Number | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the card hardly computed."""
        return self.utilization is not None and self.utilization < IDLE_PERCENT


class HostUseDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The host of a session: with all that ran on it."""

    name: str = ""
    cores: int | None = None
    memory_mb: _Number | None = None
    cpu: _Number | None = None
    """The mean of all cores, in per cent."""
    peak_memory_mb: _Number | None = None


class SystemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `roost.package.session_schema.SystemUse`."""

    seconds: _Number = 0.0
    cards: list[CardUseDetails] = []
    energy_kwh: _Number | None = None
    price_per_kwh: _Number | None = None
    currency: str = ""
    cost: _Number | None = None
    cpu_seconds: _Number | None = None
    read_mb: _Number | None = None
    written_mb: _Number | None = None
    host: HostUseDetails = HostUseDetails()
    trouble: str | None = None


def of_session(package: Path, session: Session) -> SystemDetails | None:
    """Returns what was measured of a session; None for one that ended at once, or of an older roost. A record
    that roost cannot have written counts as none."""
    found = session.recorded.system
    if found is None:  # it runs, or its supervisor was killed
        found = system_summary.read_use(package, session.number, os.environ)
    if not isinstance(found, dict):
        return None
    try:
        return msgspec.convert(package_schema.printable(found), SystemDetails)
    except msgspec.ValidationError:
        return None
