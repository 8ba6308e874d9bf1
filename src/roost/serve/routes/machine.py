"""The machine and its lab over HTTP: cards, leases, the daemon, what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from roost import __version__
from roost.operations import lab
from roost.operations.devices import devices
from roost.operations.devices.devices import DeviceList
from roost.operations.lab import Status
from roost.operations.notices import Notices, notices, try_notices
from roost.operations.queue.resources import parse_window
from roost.operations.responses import About, Drained, Event, Lease
from roost.serve.http.route import Asked, Route, Stream
from roost.serve.routes import event_streams

Cards = Annotated[str, Meta(min_length=1, max_length=4096)]
Moment = Annotated[str, Meta(max_length=64)]


class Nothing(Asked, frozen=True, kw_only=True):
    """Nothing needs to be said."""


class ChangeDevices(Asked, frozen=True, kw_only=True):
    """How the lab uses the cards; what is left out stays as it is."""

    allowed: Cards | None = None
    """``0,2``, or ``all``."""
    most_per_card: Annotated[int, Meta(ge=1, le=10_000)] | Literal["any"] | None = None
    foreign: Literal["avoid", "fit", "ignore"] | None = None
    keep_free_mb: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    """Of each card, given to no task."""
    cores: Annotated[int, Meta(ge=0, le=4096)] | Literal["any"] | None = None
    """For tasks of the CPU."""


class Drain(Asked, frozen=True, kw_only=True):
    """Cards on which nothing more begins."""

    cards: Cards
    """``0,2``, or ``all``."""
    off: bool = False
    """Take it back."""
    begin: Moment | None = None
    """From then on, with ``until``: ``22:00``, ``2026-11-22T22:00`` or ``+2h``; None: now."""
    until: Moment | None = None
    """What may not have ended before does not begin; None: until it is taken back."""


def _about(asked: Nothing) -> About:
    return About("roost", __version__)


def _lab(asked: Nothing) -> Status:
    return lab.status()


def _devices(asked: Nothing) -> DeviceList:
    return devices.show()


def _change(asked: ChangeDevices) -> DeviceList:
    devices.change(devices.DeviceChange(**msgspec.structs.asdict(asked)))
    return devices.show()


def _drain(asked: Drain) -> Drained:
    window = parse_window(asked.begin, asked.until, off=asked.off)
    return Drained([card.id for card in devices.drain(asked.cards, off=asked.off, window=window)])


def _leases(asked: Nothing) -> list[Lease]:
    return [Lease(card.id, one) for card in devices.show().cards for one in card.leases]


def _events(asked: event_streams.Events) -> list[Event]:
    return event_streams.events(asked)


def _follow(asked: event_streams.Events) -> Stream:
    return event_streams.Happenings(asked)


def _notices(asked: Nothing) -> Notices:
    return notices()


def _try_notices(asked: Nothing) -> Notices:
    return try_notices()


ROUTES: Sequence[Route] = (
    Route(name="about", path="", summary="Who answers.", asked=Nothing, answer=About, run=_about),
    Route(name="lab", path="/lab", summary="The daemon, and how many tasks are in each state.",
          asked=Nothing, answer=Status, run=_lab),
    Route(name="devices", path="/devices", summary="The cards, and who is on them.", asked=Nothing,
          answer=DeviceList, run=_devices),
    Route(name="change_devices", method="POST", path="/devices", summary="Change how the lab uses them.",
          asked=ChangeDevices, answer=DeviceList, run=_change),
    Route(name="drain", method="POST", path="/devices/drain", summary="Let nothing more begin on cards.",
          asked=Drain, answer=Drained, run=_drain),
    Route(name="leases", path="/leases", summary="Cards that others hold.", asked=Nothing,
          answer=list[Lease], run=_leases),
    Route(name="events", path="/events", summary="What happened in the lab, from a cursor on.",
          asked=event_streams.Events, answer=list[Event], run=_events),
    Route(name="follow_events", path="/events/follow", summary="What happens in the lab, as it comes.",
          asked=event_streams.Events, answer=Stream, run=_follow),
    Route(name="notices", path="/notices", summary="Who is told when tasks end, fail or stall.",
          asked=Nothing, answer=Notices, run=_notices),
    Route(name="try_notices", method="POST", path="/notices/test", summary="Send one to each of them.",
          asked=Nothing, answer=Notices, run=_try_notices),
)  # fmt: skip
