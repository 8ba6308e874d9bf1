"""A task of the lab: what it needs, and what has become of it."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's: none is mistaken for another."""

PENDING, STARTING, RUNNING, STOPPING = "pending", "starting", "running", "stopping"
SUCCEEDED, FAILED, STOPPED, CRASHED = "succeeded", "failed", "stopped", "crashed"
LIVE = (STARTING, RUNNING, STOPPING)
"""It holds what it was given."""
ENDED = (SUCCEEDED, FAILED, STOPPED, CRASHED)
"""It never leaves these."""

EVICT, STOP, KILL = "evict", "stop", "kill"
"""How a live task can be asked to end, the strongest last: save and wait again, save and end, end at once."""


class Need(msgspec.Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """What a task needs to run."""

    cards: int = 0
    """How many at once; 0 for a task of the CPU."""
    cores: int | None = None
    """Of the CPU, of a task without cards; None: it counts as one."""
    memory_mb: int | None = None
    """Of each card. None: whole cards, until it is known from earlier runs."""
    whole: bool = False
    """Whether it shares its cards with nobody, whatever memory it needs."""
    time_limit: float | None = None
    """Seconds; None: as long as it takes."""
    opportunistic: bool = False
    """Whether it may be stopped, with a checkpoint, for a task that is not, and waits then to go on."""
    least_mb: int | None = None
    """Of each card, whatever earlier runs tell: with less it has run out of memory."""
    ran_out: int = 0
    """How often it has, by its own fault."""

    @property
    def cores_in_words(self) -> str:
        """``2 cores``; empty where it does not say."""
        return f"{self.cores} core{'s' if self.cores > 1 else ''}" if self.cores else ""


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the queue. The garbage collector passes over it: plain data has no cycles."""

    id: str
    """26 characters, in the order of submission (a time and 80 random bits)."""
    name: str
    """For people: that of the package, or of the command."""
    package: str
    """The folder that holds all that it leaves."""
    user: str
    """Whose it is, as the system calls them."""
    state: str
    reason: str = ""
    """Of a pending one: why it waits. Of an ended one: why it did not succeed."""
    version: int = 0
    """Grows with each transition."""
    need: Need = Need()
    priority: int = 0
    """Higher comes first."""
    submitted: float
    """Unix seconds, as all times here."""
    begin: float | None = None
    """It does not start before."""
    after: tuple[str, ...] = ()
    """Tasks that must have succeeded before."""
    after_any: tuple[str, ...] = ()
    """Tasks that must have ended before, however."""
    sweep: str | None = None
    """The sweep that it is one of."""
    sweep_name: str | None = None
    """What that is called; None: by what its tasks are called together."""
    most_parallel: int | None = None
    """How many of its sweep may run at once."""
    held: bool = False
    """Somebody holds it back until `release`."""
    profile: str = ""
    """Under which earlier runs are taken for the same, to know its memory."""
    scale: float | None = None
    """Its batch, or what else is like it, by which memory grows."""
    attempt: int = 0
    """How many times it was started."""
    retries: int = 0
    """How many more times it may be started after it has failed or crashed."""
    session: int | None = None
    """The package's session that is, or was, its newest attempt."""
    cards: tuple[str, ...] = ()
    """That it holds."""
    reserved_mb: int | None = None
    """Of each of them; None: the whole."""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    stop_asked: str = ""
    """Of a live one: `STOP`, `KILL` or `EVICT`, until the daemon has done it. Empty: nobody has asked."""
    plan: dict[str, Any] = {}
    """What the executor starts."""

    @property
    def others(self) -> tuple[str, ...]:
        """All tasks that must have ended before, well or however."""
        return (*self.after, *self.after_any)


def new_id(now: float) -> str:
    """The id of a task that is submitted now (unix seconds); as a ULID."""
    number = int(now * 1000) << 80 | secrets.randbits(80)
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))
