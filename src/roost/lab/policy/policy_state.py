"""The input of a decision (`PolicyState`) and its result (`Decision`), as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from roost.devices.card import Card
from roost.lab.queue.task import Task


class ReservedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A card that is reserved for one user for a time; for no user at all if `user` is empty."""

    card: str
    user: str
    begin: float
    end: float


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the machine's owner has set."""

    foreign: Literal["avoid", "fit", "ignore"] = "fit"
    """Cards that a process uses without a lease: no task is placed there, only tasks that fit into the rest
    of the memory, or the process is ignored. A task that needs a whole card never fits into a rest."""
    most_per_card: int | None = None
    """How many tasks may share a card."""
    safety_mb: int = 512
    """Memory of each card that stays free; at least 2 % of the card."""
    allowed: tuple[str, ...] | None = None
    """The cards that tasks may have; None: all."""
    drained: tuple[str, ...] = ()
    """Cards on which no further task starts."""
    reserved: tuple[ReservedWindow, ...] = ()
    cores: int = 1
    """CPU cores for all tasks together; a task without a card that names no number takes one."""
    host_memory_mb: int | None = None
    """Memory of the host for all tasks that request some; None: not known, so no task waits for it."""
    longest_wait: float = 7 * 86400.0
    """Seconds after which a task goes before others of its class, whatever their priority and fair share."""
    longest_wait_of_several: float = 86400.0
    """The same for a task of several cards. Cards become free one at a time: tasks of one card, of users with
    less usage, would overtake it as long as there are any."""


@dataclass(frozen=True, slots=True)
class OtherLease:
    """A lease of a card that no live task of this queue holds: a foreground run, another user's task."""

    user: str
    mb: int | None
    """None: the whole card."""
    end: float = math.inf
    """When it ends, as far as known."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The memory and run time of a task, predicted from earlier runs."""

    memory_mb: int | None = None
    """Replaces the memory that the task itself requests. 0: more than a share of any card."""
    seconds: float | None = None
    """The run time; a time limit of the task replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """Everything that a decision depends on.

    Args:
        now: Unix seconds.
        pending: The pending tasks.
        live: The started tasks that have not ended; each with its cards and ``reserved_mb``.
        cards: The cards of the machine. Their ``users`` are processes that hold no lease.
        other_leases: By card: the leases without those of ``live``.
        usage: GPU-seconds of each user, decayed with age, those of live tasks included.
        expected: By task, where a prediction exists.
        last_saved: By task: the time of its last checkpoint, so what preempting it would cost.
        dependency_states: The states of the tasks that others depend on, where they are known.
        closed_cards: By task: cards that it may not have, even if others may.
        has_other_queues: Whether the queue is one of several, each of one user: then a priority counts only
            among the tasks of its user.
    """

    now: float
    pending: Sequence[Task]
    live: Sequence[Task] = ()
    cards: Sequence[Card] = ()
    other_leases: Mapping[str, Sequence[OtherLease]] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, Expectation] = field(default_factory=dict)
    last_saved: Mapping[str, float] = field(default_factory=dict)
    dependency_states: Mapping[str, str] = field(default_factory=dict)
    closed_cards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    has_other_queues: bool = False
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Placement:
    """A task to start now, with its cards."""

    task: str
    cards: tuple[str, ...] = ()
    mb: int | None = None
    """Memory of each card; None: whole cards."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one scheduling pass."""

    placements: tuple[Placement, ...]
    preemptions: tuple[str, ...]
    """Live tasks to stop with a checkpoint and to requeue."""
    reasons: Mapping[str, str]
    """Of each task that waits: a code for programs, a colon, and one line for people."""
    first_blocked: str | None = None
    """The first task that waits for capacity: cards are reserved for it."""
    first_blocked_start: float | None = None
    """The latest time at which it starts, as far as known."""
