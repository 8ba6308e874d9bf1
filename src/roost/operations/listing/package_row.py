"""The line of one package in a list.

Apart from `roost.operations.listing.package_summary`, which makes it: that module takes longer to import than
ten thousand packages take to list.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.package.session_schema import LIVE_STATES


class PackageSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A package in a list. A field is None if its value is not known (yet)."""

    name: str
    state: str
    """new, starting, running, succeeded, failed, stopped or crashed; damaged if a file of it is; foreign if
    DLNest's own programs wrote it."""
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    metric: str | None = None
    """The metric of the first rule of ``checkpoint.best``, else valid/loss, else the first there is."""
    last: float | None = None
    """The newest value of the metric."""
    best: float | None = None
    """The value of the metric in the best checkpoint; None without such a rule."""
    started: float | None = None
    """Start of the first session, Unix seconds."""
    seconds: float | None = None
    """Running time of all sessions together."""
    sessions: int = 0
    error: str | None = None
    """The last error line of a run that failed or crashed; the damage of a damaged package."""
    reason: str | None = None
    """Why the run ended early without a failure: early stop, time limit."""
    description: str | None = None
    parent: str | None = None
    """The package from which it was forked, if it is a fork."""
    parent_step: int | None = None
    """The step at which it was forked."""
    task: str | None = None
    """The id of its newest task in a queue."""
    sweep: str | None = None
    """The id of the sweep, for a run of one."""
    sweep_name: str | None = None
    """The name that the sweep was given, if it was."""
    group: str | None = None
    """For a run of a sweep: equal for runs that differ only in their seed."""
    tags: list[str] = []
    """Its tags, in the order in which they were added."""
    note: str | None = None
    """The note that a person wrote, with line ends; any character may be in it."""
    starred: bool = False
    remote: str | None = None
    """The URL of the store of its remote copy, if it has one."""
    durable_step: int | None = None
    """The step up to which the remote copy has the run."""
    durability: str | None = None
    """The same for people: ``durable up to step 400, 12 MB to go``, ``NOT durable since step 400: …``."""
    remote_error: str | None = None
    """Why the remote copy does not get further."""
    system: str | None = None
    """The other system from which it was imported: it has only the settings that were recorded there."""


FOREIGN = "foreign"
"""The state of a package that DLNest's own programs wrote."""
CHANGING_STATES = frozenset([*LIVE_STATES, "damaged"])
"""Packages in these states are read again for each list."""


class IndexEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summary of one package as an index keeps it."""

    stamp: tuple[int, int]
    """Modification time in nanoseconds, and inode, of its ``sessions`` folder when it was summarized."""
    summary: PackageSummary


class FoundPackage(NamedTuple):
    """A package of a folder, with its entry of the index."""

    folder: Path
    name: str
    entry: IndexEntry
