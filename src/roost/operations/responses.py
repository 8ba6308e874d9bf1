"""What the server answers, and its clients understand, where that is the type of no operation."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from roost.operations.devices.devices import LeaseOnCard
from roost.operations.queue.list_tasks import TaskRow
from roost.operations.reading.package_row import PackageSummary

T = TypeVar("T")


class StreamEvent(msgspec.Struct, Generic[T], frozen=True):
    """One piece of a stream."""

    cursor: str
    """Who gives it back is told what came after."""
    kind: str
    data: T


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not carried out."""

    code: str
    """For programs; it stays the same from version to version."""
    message: str
    """What is wrong, in one sentence."""
    fix: str | None = None
    """What to do about it."""
    field: str | None = None
    """The parameter or setting at fault."""
    where: str | None = None
    """The file, and line, at fault."""


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every answer that is no success."""

    error: ProblemDetails


class ServerInfo(msgspec.Struct, frozen=True):
    """The server."""

    name: str
    version: str


class ListedRun(msgspec.Struct, frozen=True):
    """One run in a list."""

    id: str
    path: str
    summary: PackageSummary


class RunPage(msgspec.Struct, frozen=True):
    """Some of the runs."""

    total: int
    """How many are meant, on all pages."""
    runs: list[ListedRun]


class AcceptedRun(msgspec.Struct, frozen=True):
    """The run to which an order was given."""

    run: str


class QueuedTask(msgspec.Struct, frozen=True):
    """A task that waits, and its package, which stands."""

    task: str
    run: str
    name: str
    path: str


class SubmitResponse(msgspec.Struct, frozen=True):
    """What waits now."""

    queued: list[QueuedTask]
    sweep: str | None
    """The sweep that they are of."""
    notes: list[str]


class ProjectResponse(msgspec.Struct, frozen=True):
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
    """Whole characters, with what is no UTF-8 replaced."""
    raw: bytes = msgspec.field(name="bytes")


class RowPiece(msgspec.Struct, frozen=True):
    """What a run has just recorded."""

    session: int
    rows: list[dict[str, Any]]
    """By metric. Where one with a ``start_step`` stands a session began or went back: what was recorded after
    that step counts no more."""


class FileEntry(msgspec.Struct, frozen=True):
    """One file."""

    path: str
    """Below the run's folder."""
    kind: str
    """file, folder or link; other for what cannot be read."""
    size_bytes: int
    modified: float
    """Unix seconds."""


class TaskPage(msgspec.Struct, frozen=True):
    """Some of the tasks."""

    total: int
    """How many are meant, on all pages."""
    tasks: list[TaskRow]


class AcceptedTasks(msgspec.Struct, frozen=True):
    """The tasks to which an order was given."""

    tasks: list[str]


class DrainedCards(msgspec.Struct, frozen=True):
    """The cards that were meant."""

    cards: list[str]


class LeaseEntry(msgspec.Struct, frozen=True):
    """Who holds what of a card, beside this lab's tasks."""

    card: str
    lease: LeaseOnCard


class Event(msgspec.Struct, frozen=True):
    """One thing that happened in the lab."""

    cursor: str
    """Who gives it back is told what came after."""
    at: float
    """Unix seconds."""
    task: str | None
    kind: str
    text: str
