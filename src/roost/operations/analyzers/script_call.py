"""``run_script`` and the other requests to an analyzer: interrupt, another checkpoint, lists of scripts and
calls."""

from __future__ import annotations

import msgspec


class ScriptCall(msgspec.Struct, frozen=True):
    """One run of a script in an analyzer."""

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


class Interrupt(msgspec.Struct, frozen=True):
    """A request to an analyzer to interrupt its script."""

    task: str
    analysis: int | None
    """The analysis that is interrupted; None: no script runs or waits."""


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


def run_script(analyzer: str, script: str) -> ScriptCall:
    """Requests an analyzer to run a script after those that were requested before, and returns at once. The
    source is copied now; later edits do not change this call.

    Args:
        analyzer: The task: its id, the beginning of one, its label or its name.
        script: The name of a script, or the path of one, in a folder that the analyzer may run from: the
            project's AnalyzeScripts, the package's, and what the analyzer was started with.

    Raises:
        NotFound: There is no such task or script.
        UsageError: The text is ambiguous, or names no analyzer.
        Refused: The analyzer has ended, or the script is in none of these folders.
        ContractError: The script is not valid Python, or has no callable `experience`.
    """
    raise NotImplementedError


def interrupt_script(analyzer: str) -> Interrupt:
    """Requests an analyzer to interrupt the script that runs; if none does, the first one that waits never
    starts. The analyzer lives on.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
        Refused: The analyzer has ended.
    """
    raise NotImplementedError


def switch_checkpoint(analyzer: str, checkpoint: str | int) -> CheckpointSwitch:
    """Requests an analyzer to load another checkpoint, after the scripts that were requested before.

    Args:
        analyzer: As for `run_script`.
        checkpoint: An id, ``last``, ``best``, or ``untrained`` (also -2): the weights as the Runner builds
            them.

    Raises:
        NotFound: There is no such task or checkpoint.
        CheckpointError: roost has not written the checkpoint.
        UsageError: The text is ambiguous, or names no analyzer; or it is no checkpoint.
        Refused: The analyzer has ended.
    """
    raise NotImplementedError


def list_scripts(analyzer: str) -> list[ScriptEntry]:
    """Returns the scripts that an analyzer may run, by name. Of several with one name it is the first found.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
    """
    raise NotImplementedError


def list_calls(analyzer: str) -> list[CallRow]:
    """Returns the calls of an analyzer, oldest first.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
    """
    raise NotImplementedError
