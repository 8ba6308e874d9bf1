"""The bodies of the server's answers that are no result type of an operation. Its Python client reads
them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from roost.operations.devices.device_list import LeaseOnCard
from roost.operations.listing.package_row import PackageSummary
from roost.operations.task_results import TaskRow

T = TypeVar("T")


class StreamEvent(msgspec.Struct, Generic[T], frozen=True):
    """An event of an event stream."""

    cursor: str
    """The position after this event, from which a later request continues."""
    kind: str
    data: T


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a request failed."""

    code: str
    """For programs; the same in all versions."""
    message: str
    """What is wrong, in one sentence."""
    fix: str | None = None
    """How to fix it."""
    field: str | None = None
    """The parameter or setting at fault."""
    where: str | None = None
    """The file at fault, perhaps with the line."""


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every answer with a status of 400 or above."""

    error: ProblemDetails


class ServerInfo(msgspec.Struct, frozen=True):
    """The name and the version of the server."""

    name: str
    version: str


class ListedRun(msgspec.Struct, frozen=True):
    """A run in a list."""

    id: str
    path: str
    summary: PackageSummary


class RunPage(msgspec.Struct, frozen=True):
    """A page of the list of runs."""

    total: int
    """The number on all pages."""
    runs: list[ListedRun]


class AcceptedRun(msgspec.Struct, frozen=True):
    """The run for which a request was accepted."""

    run: str


class QueuedTask(msgspec.Struct, frozen=True):
    """A queued task and its package, which exists already."""

    task: str
    run: str
    name: str
    path: str
    label: str = ""
    """The short name, such as ``P_15``."""


class SubmitResponse(msgspec.Struct, frozen=True):
    """The tasks that a request has queued."""

    queued: list[QueuedTask]
    sweep: str | None
    """The id of their sweep, if they are of one."""
    notes: list[str]


class ProjectResponse(msgspec.Struct, frozen=True):
    """A project that was created."""

    path: str
    files: list[str]


class LogPage(msgspec.Struct, frozen=True):
    """A part of the output of a run. Offsets are bytes from its beginning."""

    offset: int
    next: int
    """The offset of the next page."""
    size: int
    """Bytes of the output so far."""
    text: str
    """Bytes that are not UTF-8 are replaced."""


class LogPiece(msgspec.Struct, frozen=True):
    """New output of a run."""

    text: str
    """Whole characters; bytes that are not UTF-8 are replaced."""
    raw: bytes = msgspec.field(name="bytes")


class RowPiece(msgspec.Struct, frozen=True):
    """New rows of a run."""

    session: int
    rows: list[dict[str, Any]]
    """Values by metric. A row with a ``start_step`` says that a session began there, or went back to it: rows
    of later steps that were sent before it are void."""


class FileEntry(msgspec.Struct, frozen=True):
    """A file of a run."""

    path: str
    """Below the run's folder."""
    kind: str
    """file, folder or link; other for one that cannot be read."""
    size_bytes: int
    modified: float
    """Unix seconds."""


class TaskPage(msgspec.Struct, frozen=True):
    """A page of the list of tasks."""

    total: int
    """The number on all pages."""
    tasks: list[TaskRow]
    left_out: int = 0
    """The number of ended tasks that are on no page; ``all=true`` includes them."""


class JournalPage(msgspec.Struct, frozen=True):
    """A part of the journal of the server: a line for each operation that it was asked for."""

    offset: int
    """The offset of the next part."""
    lines: list[str]


class AcceptedTasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tasks for which a request was accepted."""

    tasks: list[str]
    notes: list[str] = msgspec.field(default_factory=list)


class DrainedCards(msgspec.Struct, frozen=True):
    """The cards that were drained or released."""

    cards: list[str]


class LeaseEntry(msgspec.Struct, frozen=True):
    """A lease on a card that is not of a task of this lab."""

    card: str
    lease: LeaseOnCard


class Event(msgspec.Struct, frozen=True):
    """A change of a task in the lab."""

    cursor: str
    """The position after this event, from which a later request continues."""
    at: float
    """Unix seconds."""
    task: str | None
    kind: str
    text: str
