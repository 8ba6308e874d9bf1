"""The routes of the machine and its lab: cards, leases, the daemon, events, notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from roost import __version__
from roost.operations import lab
from roost.operations.devices import device_history, devices
from roost.operations.devices.device_history import MachineHistory
from roost.operations.devices.device_list import DEFAULT_SINCE, DeviceList
from roost.operations.lab import LabStatus
from roost.operations.notices import Notices, notices, try_notices
from roost.operations.queue.resources import parse_window
from roost.operations.responses import DrainedCards, Event, JournalPage, LeaseEntry, ServerInfo
from roost.serve import request_journal
from roost.serve.http.route import EventStream, RequestParameters, Route
from roost.serve.routes import event_streams

Cards = Annotated[str, Meta(min_length=1, max_length=4096)]
Moment = Annotated[str, Meta(max_length=64)]


class NoParameters(RequestParameters, frozen=True, kw_only=True):
    """No parameters."""


class SinceWhen(RequestParameters, frozen=True, kw_only=True):
    """How far back."""

    since: Annotated[str, Meta(min_length=1, max_length=64)] = DEFAULT_SINCE
    """``30min`` or ``12h``; about a day is stored."""


class ChangeDevices(RequestParameters, frozen=True, kw_only=True):
    """How the lab uses the cards; settings that are left out do not change."""

    allowed: Cards | None = None
    """``0,2``, or ``all``."""
    most_per_card: Annotated[int, Meta(ge=1, le=10_000)] | Literal["any"] | None = None
    foreign: Literal["avoid", "fit", "ignore"] | None = None
    keep_free_mb: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    """MB of each card that no task gets."""
    cores: Annotated[int, Meta(ge=0, le=4096)] | Literal["any"] | None = None
    """CPU cores for all tasks; one without cards takes one unless it requests more."""
    host_memory_mb: Annotated[int, Meta(ge=0, le=2**40)] | Literal["any"] | None = None
    """MB of the machine's memory that tasks may request together."""


class Drain(RequestParameters, frozen=True, kw_only=True):
    """Cards on which no further task starts."""

    cards: Cards
    """``0,2``, or ``all``."""
    off: bool = False
    """End the drain."""
    begin: Moment | None = None
    """The start of a window, with ``until``: ``22:00``, ``2026-11-22T22:00`` or ``+2h``; None: now."""
    until: Moment | None = None
    """The end of the window. Before the window, tasks still start whose time limit ends them in time. None:
    the drain lasts until ``off``."""


class ReadJournal(RequestParameters, frozen=True, kw_only=True):
    """The journal of the server, from an offset on."""

    offset: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    """The offset of an earlier answer: only the lines after it. None: the newest lines."""


def _about(parameters: NoParameters) -> ServerInfo:
    return ServerInfo("roost", __version__)


def _lab(parameters: NoParameters) -> LabStatus:
    return lab.status()


def _devices(parameters: NoParameters) -> DeviceList:
    return devices.show()


def _device_history(parameters: SinceWhen) -> MachineHistory:
    return device_history.history(parameters.since)


def _change_devices(parameters: ChangeDevices) -> DeviceList:
    devices.change(devices.DeviceChange(**msgspec.structs.asdict(parameters)))
    return devices.show()


def _drain(parameters: Drain) -> DrainedCards:
    window = parse_window(parameters.begin, parameters.until, off=parameters.off)
    return DrainedCards(
        [card.id for card in devices.drain(parameters.cards, off=parameters.off, window=window)]
    )


def _leases(parameters: NoParameters) -> list[LeaseEntry]:
    return [LeaseEntry(card.id, one) for card in devices.show().cards for one in card.leases]


def _events(parameters: event_streams.ReadEvents) -> list[Event]:
    return event_streams.read_events(parameters)


def _follow_events(parameters: event_streams.ReadEvents) -> EventStream:
    return event_streams.LabEventStream(parameters)


def _journal(parameters: ReadJournal) -> JournalPage:
    return request_journal.read(parameters.offset)


def _clear_journal(parameters: NoParameters) -> JournalPage:
    request_journal.clear()
    return request_journal.read(None)


def _notices(parameters: NoParameters) -> Notices:
    return notices()


def _try_notices(parameters: NoParameters) -> Notices:
    return try_notices()


ROUTES: Sequence[Route] = (
    Route(name="about", path="", summary="The server and its version.", parameters=NoParameters,
          answer=ServerInfo, run=_about),
    Route(name="lab", path="/lab", summary="The daemon, and the number of tasks in each state.",
          parameters=NoParameters, answer=LabStatus, run=_lab),
    Route(name="devices", path="/devices", summary="The cards and what uses them.", parameters=NoParameters,
          answer=DeviceList, run=_devices),
    Route(name="device_history", path="/devices/history",
          summary="What cards and host did, and who held them.", parameters=SinceWhen,
          answer=MachineHistory, run=_device_history),
    Route(name="change_devices", method="POST", path="/devices", summary="Change how the lab uses the cards.",
          parameters=ChangeDevices, answer=DeviceList, run=_change_devices),
    Route(name="drain", method="POST", path="/devices/drain",
          summary="Drain cards: no further task starts on them.",
          parameters=Drain, answer=DrainedCards, run=_drain),
    Route(name="leases", path="/leases",
          summary="The leases of other labs and programs.", parameters=NoParameters,
          answer=list[LeaseEntry], run=_leases),
    Route(name="events", path="/events", summary="The lab's events, from a cursor on.",
          parameters=event_streams.ReadEvents, answer=list[Event], run=_events),
    Route(name="follow_events", path="/events/follow", summary="The lab's events, as they happen.",
          parameters=event_streams.ReadEvents, answer=EventStream, run=_follow_events),
    Route(name="journal", path="/journal",
          summary="What the server was asked for, a line for each operation.",
          parameters=ReadJournal, answer=JournalPage, run=_journal),
    Route(name="clear_journal", method="POST", path="/journal/clear",
          summary="Let the journal begin anew.", parameters=NoParameters,
          answer=JournalPage, run=_clear_journal),
    Route(name="notices", path="/notices", summary="The receivers of notices about tasks.",
          parameters=NoParameters, answer=Notices, run=_notices),
    Route(name="try_notices", method="POST", path="/notices/test",
          summary="Send a test notice to each receiver.",
          parameters=NoParameters, answer=Notices, run=_try_notices),
)  # fmt: skip
