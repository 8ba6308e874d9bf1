"""A task of the queue: its resource request, its state, and the results of its attempts."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from roost.devices.resource_request import ResourceRequest
from roost.package.kinds import KindTraits, TaskKind, task_label, traits_of
from roost.package.session_schema import ENDED_STATES

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32, whose digits cannot be confused."""

PENDING, STARTING, RUNNING, STOPPING = "pending", "starting", "running", "stopping"
SUCCEEDED, FAILED, STOPPED, CRASHED = ENDED_STATES
LIVE = (STARTING, RUNNING, STOPPING)
"""The states in which a task holds cards."""
ENDED = ENDED_STATES
"""The final states."""

EVICT, STOP, KILL = "evict", "stop", "kill"
"""Stop requests to a live task, the strongest last: save and become pending again, save and end, end at
once."""


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the queue. The garbage collector does not track it: plain data has no cycles."""

    id: str
    """26 characters, sorted by the time of submission (a time and 80 random bits)."""
    seq: int = 0
    """Its number in the queue, by the order of submission, which a rebuild may change; 0 before it is
    queued."""
    name: str
    """The name to show: that of the package, or of the command; of a task that reads a package the path of
    its session folder, from the package's name on."""
    kind: str = TaskKind.TRAIN
    """One of `roost.package.kinds.TASK_KINDS`."""
    package: str
    """The folder of the package."""
    session_folder: str = ""
    """The folder of a task that reads the package (`roost.package.session_folder`); empty: the package
    itself."""
    user: str
    """The login name of the owner."""
    state: str
    reason: str = ""
    """Of a pending task: why it waits. Of an ended task: why it did not succeed."""
    version: int = 0
    """Incremented by each change but that of a wait reason."""
    need: ResourceRequest = ResourceRequest()
    priority: int = 0
    """Tasks with a higher priority start first."""
    submitted: float
    """Unix seconds, as all times here."""
    begin: float | None = None
    """The begin time: the task does not start before."""
    after: tuple[str, ...] = ()
    """Tasks that must have succeeded before."""
    after_any: tuple[str, ...] = ()
    """Tasks that must have ended before, in any state."""
    sweep: str | None = None
    """The id of the task's sweep."""
    sweep_name: str | None = None
    """The name of the sweep; None: the common beginning of its tasks' names."""
    most_parallel: int | None = None
    """How many tasks of the sweep may run at once."""
    held: bool = False
    """Whether the task is held until a release."""
    profile: str = ""
    """The key of the memory profile that the task shares with runs of the same configuration."""
    scale: float | None = None
    """The batch size, or another number with which memory grows."""
    attempt: int = 0
    """How many times the task was started."""
    retries: int = 0
    """How many more times the task may be started after it failed or crashed."""
    session: int | None = None
    """The session of the newest attempt."""
    cards: tuple[str, ...] = ()
    """The ids of the cards that the task holds."""
    reserved_mb: int | None = None
    """The memory reserved on each of them; None: the whole card."""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    stop_asked: str = ""
    """The stop request to a live task, until the daemon has carried it out: `STOP`, `KILL` or `EVICT`; empty:
    none."""
    plan: dict[str, Any] = {}
    """The session plan that the executor starts."""

    @property
    def traits(self) -> KindTraits:
        """The traits of its kind."""
        return traits_of(self.kind)

    @property
    def label(self) -> str:
        """The short name, such as ``A_13``: the letter of the kind and the number in the queue."""
        return task_label(self.kind, self.seq)

    @property
    def folder(self) -> Path:
        """The folder whose lock, sessions and output the task uses: the package, or its session folder."""
        return Path(self.session_folder or self.package)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """All tasks that must have ended before, successfully or in any state."""
        return (*self.after, *self.after_any)


def new_id(now: float) -> str:
    """Returns an id for a task that is submitted now (unix seconds), in the format of a ULID."""
    number = int(now * 1000) << 80 | secrets.randbits(80)
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))
