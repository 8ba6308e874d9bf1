"""What a decision is made from, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from roost.devices.card import Card
from roost.lab.queue.task import Task


class ReservedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A card that is one user's for a time."""

    card: str
    user: str
    begin: float
    end: float


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine's owner has laid down."""

    foreign: Literal["avoid", "fit", "ignore"] = "fit"
    """Cards on which somebody computes without a lease: no task at all, only what fits beside, or as if they
    were free. A task that wants a whole card never fits beside."""
    most_per_card: int | None = None
    """How many tasks may share a card."""
    safety_mb: int = 512
    """Of each card that stays free; at least 2 % of it."""
    allowed: tuple[str, ...] | None = None
    """The cards that tasks may have; None: all."""
    drained: tuple[str, ...] = ()
    """Cards on which nothing more begins."""
    reserved: tuple[ReservedWindow, ...] = ()
    cores: int = 1
    """That tasks of the CPU have together; each counts as one that does not say more."""
    longest_wait: float = 7 * 86400.0
    """Seconds after which a task goes before others of its class, whatever priority and share they have."""
    longest_wait_of_several: float = 86400.0
    """The same of a task of several cards. They become free one at a time: as long as there are tasks of one,
    of users who have had less, these pass it over."""


@dataclass(frozen=True, slots=True)
class OtherLease:
    """What somebody else's lease holds of a card: a foreground run, another user's task."""

    user: str
    mb: int | None
    """None: the whole card."""
    end: float = math.inf
    """When it ends, as far as known."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What earlier runs tell of a task."""

    memory_mb: int | None = None
    """Goes before what the task itself needs by its own account. 0: more than a share of any card."""
    seconds: float | None = None
    """How long it takes; its limit, where it has one, goes before this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """All that a decision depends on.

    Args:
        now: Unix seconds.
        pending: The queue.
        live: What has been started and has not ended; each with its cards and ``reserved_mb``.
        cards: Of the machine. Their ``users`` are processes that hold no lease.
        held: By card: leases of others, without those of ``live``.
        usage: GPU-seconds of each user, the older the less, those of live tasks included.
        expected: By task, where something is known.
        saved: By task: when it saved last, so what an eviction would cost.
        states: Of the tasks that others wait for, where they are known.
        closed: By task: cards that it may not have, whoever else may.
        shared: Whether the queue is one of several, each of one user: then a priority counts among the tasks
            of its user alone.
    """

    now: float
    pending: Sequence[Task]
    live: Sequence[Task] = ()
    cards: Sequence[Card] = ()
    held: Mapping[str, Sequence[OtherLease]] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, Expectation] = field(default_factory=dict)
    saved: Mapping[str, float] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shared: bool = False
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Placement:
    """A task to be started now."""

    task: str
    cards: tuple[str, ...] = ()
    mb: int | None = None
    """Of each of them; None: the whole."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now."""

    placements: tuple[Placement, ...]
    evictions: tuple[str, ...]
    """Live tasks to be stopped with a checkpoint and queued again."""
    reasons: Mapping[str, str]
    """Of each task that waits: a word for programs, a colon, and one line for people."""
    head: str | None = None
    """The first task that waits for room: cards are kept for it."""
    head_start: float | None = None
    """When it starts at the latest, as far as known."""
