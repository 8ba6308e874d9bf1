"""The line of one package in a list.

Apart from `roost.operations.reading.package_summary`, which makes it: that module takes longer to import than
ten thousand packages take to list.
"""

from __future__ import annotations

import msgspec


class PackageSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One package. None where something is not known (yet)."""

    name: str
    state: str
    """new, starting, running, succeeded, failed, stopped or crashed; damaged when its files cannot tell."""
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    metric: str | None = None
    """The one that the first rule of ``checkpoint.best`` watches, else valid/loss, else what there is."""
    last: float | None = None
    """Its newest value."""
    best: float | None = None
    """Its value in the best checkpoint; None without such a rule."""
    started: float | None = None
    """Unix time of the first session's start."""
    seconds: float | None = None
    """Running time of all sessions together."""
    sessions: int = 0
    error: str | None = None
    """The last error line of a run that failed or crashed; what is damaged."""
    reason: str | None = None
    """Why it ended before its end without failing: early stop, time limit."""
    description: str | None = None
    parent: str | None = None
    """The package that it goes on from, if it is a fork."""
    parent_step: int | None = None
    """The step at which it does."""
    group: str | None = None
    """Of a run of a sweep: the same for those that differ in their seed alone."""


CHANGING_STATES = frozenset(["starting", "running", "damaged"])
"""Packages in these states are read again for each list."""


class IndexEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summary of one package as an index keeps it."""

    stamp: tuple[int, int]
    """Modification time in nanoseconds, and inode, of its ``sessions`` folder when it was summarized."""
    summary: PackageSummary
