"""How a run that failed tells it: the cause in words, the person's own lines, and where the rest is."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base import durable, traceback_frames
from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE, PeerLost, RoostError
from roost.base.exception_record import ExceptionRecord, record_exception
from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.base.text.terminal_text import escape_control
from roost.base.traceback_frames import ProjectFiles, single_line, truncate
from roost.worker.causes import cause_table
from roost.worker.causes.cause import Cause, FailureContext
from roost.worker.causes.memory_causes import is_gpu_out_of_memory

_MAX_TRACEBACK_BYTES = 16 * 2**20
"""Of the whole traceback; what a person's code puts into an error may be of any size."""
_DEBUG_HINT = "the whole traceback: add --debug to the command"


class FailureReport(NamedTuple):
    """An error, ready to be told."""

    reason: str
    """``error``: a mistake or a full disk; ``exit``: the code ended itself; ``exception``: it failed;
    ``oom_gpu``: likewise, because a GPU had no more memory; ``peer``: another rank is gone, which tells the
    cause itself."""
    error: str
    """One line: the cause where it is known, else type and message."""
    exit_code: int
    lines: tuple[str, ...]
    """What is printed."""
    full_traceback: str
    """The whole traceback."""
    is_complete: bool
    """Whether the lines tell everything, so that nobody needs the whole traceback."""


def explain(error: BaseException, *, own: Sequence[Path], package: Path | None = None) -> FailureReport:
    """What to tell of an error.

    Args:
        error: Anything that was raised.
        own: The folders with the person's code; frames of files below them are shown, the others counted.
        package: The package that was worked on, for causes that look at its settings and records.
    """
    found, whose, scene = record_exception(error), ProjectFiles(own), FailureContext(package)
    full_traceback = _full_traceback(error)
    if is_peer_loss(error):
        words = single_line(found.said) if isinstance(error, PeerLost) else _peer_loss_message(error)
        # Nothing is printed: the supervisor says it, if the rank that is gone gives no cause of its own.
        return FailureReport("peer", words, 1, (), full_traceback, is_complete=True)
    if isinstance(error, RoostError) or _is_roost_file_error(error):
        return _user_error_report(error, found, whose, scene, full_traceback)
    if isinstance(error, SystemExit | KeyboardInterrupt):
        words, code = _early_exit(error)
        lines = (f"error: {words}", *_traceback(found, whose))
        return FailureReport("exit", words, code, lines, full_traceback, is_complete=False)
    cause = cause_table.find(found, scene)
    lines = (*_heading(cause, found), *_traceback(found, whose, briefly=cause is not None))
    reason = OUT_OF_MEMORY if is_gpu_out_of_memory(found) else "exception"
    return FailureReport(reason, _one_line_error(cause, found, whose), 1, lines, full_traceback, is_complete=False)


def print_failure(failure: FailureReport, file: Path | None) -> None:
    """Prints a failure to stderr, and keeps the whole traceback.

    Args:
        failure: What `explain` made of the error.
        file: Takes the whole traceback. Where it cannot be written the traceback is printed instead. None:
            nothing is kept, and it is said how to see it.
    """
    rest = None if failure.is_complete else _DEBUG_HINT if file is None else _write_traceback(failure.full_traceback, file)
    if os.environ.get("ROOST_DEBUG") == "1" or (rest is None and not failure.is_complete):
        print(failure.full_traceback, file=sys.stderr)
    for line in failure.lines:
        print(line, file=sys.stderr)
    if rest is not None:
        print(rest, file=sys.stderr)
    sys.stderr.flush()


def _write_traceback(full_traceback: str, file: Path) -> str | None:
    try:
        durable.write(file, full_traceback.encode("utf-8", "backslashreplace")[:_MAX_TRACEBACK_BYTES] + b"\n")
    except OSError:  # a full disk, most likely: it must not hide the error
        return None
    return f"the whole traceback: {file}"


def _full_traceback(error: BaseException) -> str:
    return escape_control("".join(traceback.format_exception(error)).rstrip("\n"))


def report(
    error: BaseException, *, own: Sequence[Path], package: Path | None, file: Path | None
) -> FailureReport:
    """Explains an error and tells it, see `explain` and `print_failure`. Whatever goes wrong with that must not hide
    the error: then it is told as Python does."""
    try:
        failure = explain(error, own=own, package=package)
        print_failure(failure, file)
    except Exception:  # noqa: BLE001  - both errors are printed
        traceback.print_exc()
        code = error.exit_code if isinstance(error, RoostError) else 1
        return FailureReport("exception", single_line(type(error).__name__), code, (), "", is_complete=True)
    return failure


# --- another rank is gone: for the supervisor ---------------------------------------------------------------

_TORCH_RANK_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")
_CONNECTION_LOST = re.compile(
    "connection (was likely )?closed|connection reset|connection refused|broken pipe|timed out|time-?out|"
    "remote process exited|remote error|communicator was aborted|got 0 bytes|pair closure",
    re.IGNORECASE,
)


def is_peer_loss(error: BaseException) -> bool:
    """Whether it only says that another rank does not answer any more: in gloo's words, or in those of NCCL
    or of the store, which have classes of their own."""
    if isinstance(error, PeerLost):
        return True
    of_torch = any(kind.__name__ in _TORCH_RANK_ERRORS for kind in type(error).__mro__)
    text = str(error)
    is_ranks = of_torch or (isinstance(error, RuntimeError) and "gloo" in text)
    return is_ranks and _CONNECTION_LOST.search(text) is not None


def _peer_loss_message(error: BaseException) -> str:
    """Without the addresses and advice that torch adds: the supervisor knows who is gone, and why."""
    found = _CONNECTION_LOST.search(str(error))
    return f"another rank is gone: {found[0].lower()}" if found else "another rank is gone"


# --- a mistake: one line ------------------------------------------------------------------------------------


def _is_roost_file_error(error: BaseException) -> bool:
    """Whether roost's durable writes or files of the package raised it, and not what roost called: the last
    of roost's modules on the way there is one of base or package."""
    if not isinstance(error, OSError):
        return False
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.startswith("roost.")]
    return bool(own) and own[-1].startswith(("roost.base.", "roost.package."))


def _user_error_report(
    error: BaseException, found: ExceptionRecord, own: ProjectFiles, scene: FailureContext, full_traceback: str
) -> FailureReport:
    text = found.said
    code = error.exit_code if isinstance(error, RoostError) else 1
    if isinstance(error, OSError):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "make space" if is_full else "look at the disk and its rights"
        text = f"a file of roost's own: {text}. To mend it: {fix}, then `roost continue`"
    # What roost said with a fix is all that there is to say; the cause below it would say it again.
    is_open = isinstance(error, RoostError) and error.fix is None
    cause = cause_table.find(found, scene) if is_open else None
    # The line of the project that made it; a plain RoostError is one that the project has raised on purpose,
    # or that roost.download raised for it, and says everything.
    at_fault = type(error) is not RoostError and own.last(found)
    where = traceback_frames.format_project_frames(found, own) if at_fault else []
    lines = (*where, f"error: {escape_control(text)}", *([escape_control(cause.description)] if cause else []))
    return FailureReport("error", single_line(text), code, lines, full_traceback, is_complete=True)


# --- an error of the project's code -------------------------------------------------------------------------


def _early_exit(error: SystemExit | KeyboardInterrupt) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):  # no signal makes one here, see StopSignals
        return "the project's code raised KeyboardInterrupt before its work was done", 1
    shown = "" if error.code is None else truncate(repr(error.code))
    code = error.code & 0xFF if isinstance(error.code, int) else 1
    is_taken = code in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)  # roost gives these a meaning
    return (
        f"the project's code called sys.exit({escape_control(shown)}) before its work was done",
        1 if is_taken else code,
    )


def _heading(cause: Cause | None, found: ExceptionRecord) -> Iterator[str]:
    if cause is None:
        return
    yield f"error: {escape_control(cause.description)}" + (f" ({found.place})" if found.place else "")
    if cause.fix:
        yield f"to mend it: {escape_control(cause.fix)}"


def _traceback(found: ExceptionRecord, own: ProjectFiles, *, briefly: bool = False) -> Iterator[str]:
    yield "Traceback of the project's own lines (most recent call last):"
    yield from traceback_frames.format_chain(found, own, briefly=briefly)


def _one_line_error(cause: Cause | None, found: ExceptionRecord, own: ProjectFiles) -> str:
    return single_line(cause.description) if cause is not None else traceback_frames.exception_summary(found, own)
