"""The result types of the operations on analyzers: calls of scripts, and requests.

Their readers, such as the client, need not import the operations.
"""

from __future__ import annotations

import msgspec


class ScriptCall(msgspec.Struct, frozen=True):
    """A run of a script in an analyzer."""

    task: str
    """The id of the analyzer."""
    package: str
    analysis: int
    """The number of the analysis, whose folder holds everything about this call."""
    folder: str
    """The folder of the analysis."""
    script: str
    """The path of the script."""
    output_offset: int
    """Where the output of the call begins, at the earliest, in the output of the analyzer, in bytes."""


class CheckpointSwitch(msgspec.Struct, frozen=True):
    """A request to an analyzer to load another checkpoint, after the calls that were requested before it."""

    task: str
    checkpoint: int | str
    """An id, ``last`` or ``untrained``."""
    number: int
    """That of the switch."""


class ScriptInterrupt(msgspec.Struct, frozen=True):
    """A request to an analyzer to interrupt its script, or its switch to another checkpoint."""

    task: str
    analysis: int | None
    """The analysis that is interrupted; None: none."""
    checkpoint: int | str | None = None
    """The checkpoint that is not loaded: an id, ``last`` or ``untrained``; None: no switch is interrupted."""


class ScriptEntry(msgspec.Struct, frozen=True):
    """A script that an analyzer may run."""

    name: str
    """By which it is called."""
    path: str


class CallRow(msgspec.Struct, frozen=True):
    """A call of a script in an analyzer."""

    analysis: int
    script: str
    state: str
    """pending (it waits for its turn), running, succeeded, failed, stopped or crashed."""
    started: float | None
    """Unix seconds."""
    seconds: float | None
    error: str | None
    folder: str
