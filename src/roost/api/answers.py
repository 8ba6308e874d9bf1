"""What the server answers where that is no type of an operation. A client takes more than it knows: a newer
server may add fields."""

from __future__ import annotations

from typing import Any

import msgspec

from roost.operations.cards import LeaseThere
from roost.operations.list_tasks import TaskRow
from roost.operations.row import Row


class About(msgspec.Struct, frozen=True):
    """The server."""

    name: str
    version: str


class Run(msgspec.Struct, frozen=True):
    """One run in a list."""

    id: str
    path: str
    summary: Row


class RunPage(msgspec.Struct, frozen=True):
    """Some of the runs."""

    total: int
    runs: list[Run]


class OfRun(msgspec.Struct, frozen=True):
    """The run that was meant."""

    run: str


class Queued(msgspec.Struct, frozen=True):
    """A task that waits, and its package, which stands."""

    task: str
    run: str
    name: str
    path: str


class Submitted(msgspec.Struct, frozen=True):
    """What waits now."""

    queued: list[Queued]
    array: str | None
    """The sweep that they are of."""
    notes: list[str]


class Project(msgspec.Struct, frozen=True):
    """What was made."""

    path: str
    files: list[str]


class LogPage(msgspec.Struct, frozen=True):
    """A part of what a run printed; offsets are bytes from the beginning."""

    offset: int
    next: int
    """The offset to ask for then."""
    size: int
    """Bytes in all, so far."""
    text: str
    """With what is no UTF-8 replaced."""


class LogPiece(msgspec.Struct, frozen=True):
    """What a run has just printed."""

    text: str
    """With what is no UTF-8 replaced; a character may be cut in two."""
    raw: bytes = msgspec.field(name="bytes")


class Rows(msgspec.Struct, frozen=True):
    """What a run has just recorded."""

    session: int
    rows: list[dict[str, Any]]
    """By metric. Where one with a ``start_step`` stands a session began or went back: what was recorded after
    that step counts no more."""


class Entry(msgspec.Struct, frozen=True):
    """One file."""

    path: str
    """Below the run's folder."""
    kind: str
    """file, folder or link; other for what cannot be read."""
    size_bytes: int
    modified: float


class TaskPage(msgspec.Struct, frozen=True):
    """Some of the tasks."""

    total: int
    tasks: list[TaskRow]


class Ordered(msgspec.Struct, frozen=True):
    """The tasks to which an order was given."""

    tasks: list[str]


class Drained(msgspec.Struct, frozen=True):
    """The cards that were meant."""

    cards: list[str]


class Lease(msgspec.Struct, frozen=True):
    """Who holds what of a card, beside this lab's tasks."""

    card: str
    lease: LeaseThere


class Event(msgspec.Struct, frozen=True):
    """One thing that happened in the lab."""

    cursor: str
    at: float
    task: str | None
    kind: str
    text: str
