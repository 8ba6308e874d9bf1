"""The report of a failed run: the cause, the project's lines of the traceback, the file of the full one."""

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
from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE, PeerLost, RoostError, with_fix
from roost.base.exception_record import ExceptionRecord, record_exception
from roost.base.system.worker_protocol import MISTAKE, OUT_OF_MEMORY
from roost.base.text.terminal_text import escape_control
from roost.base.traceback_frames import ProjectFiles, single_line, truncate
from roost.worker.causes import cause_table
from roost.worker.causes.cause import Cause, FailureContext
from roost.worker.causes.memory_causes import is_gpu_out_of_memory

_MAX_TRACEBACK_BYTES = 16 * 2**20
"""Limit of the traceback file: the project's code may put a text of any size into an error."""
_SAME_COMMAND = "type the same command again"
_DEBUG_HINT = "the whole traceback: add --debug to the command"


class FailureReport(NamedTuple):
    """An error, explained and ready to print."""

    reason: str
    """``error``: a user's mistake or a full disk; ``exit``: the project's code ended the process;
    ``exception``: an exception of any other kind; ``oom_gpu``: an exception because a GPU ran out of memory;
    ``peer``: another rank is gone, and that rank reports the cause."""
    error: str
    """One line: the cause if it is known, else type and message."""
    exit_code: int
    lines: tuple[str, ...]
    """Printed to stderr."""
    full_traceback: str
    is_complete: bool
    """Whether ``lines`` contain everything, so that the whole traceback is not needed."""


def explain(
    error: BaseException, *, own: Sequence[Path], package: Path | None = None, retry: str = _SAME_COMMAND
) -> FailureReport:
    """Explains an error.

    Args:
        error: Any exception.
        own: Folders of the project's code; frames of files below them are shown, all others are counted.
        package: Package of the task, for causes that read its settings and records.
        retry: What the user does when the disk is in order again.
    """
    found, whose, context = record_exception(error), ProjectFiles(own), FailureContext(package)
    full_traceback = _full_traceback(error)
    if is_peer_loss(error):
        words = (
            single_line(found.text_with_notes) if isinstance(error, PeerLost) else _peer_loss_message(error)
        )
        # Prints nothing: the supervisor reports it if the lost rank reports no cause of its own.
        return FailureReport("peer", words, 1, (), full_traceback, is_complete=True)
    if isinstance(error, RoostError) or _is_roost_file_error(error):
        return _user_error_report(error, found, whose, context, full_traceback, retry)
    if isinstance(error, SystemExit | KeyboardInterrupt):
        words, code = _early_exit(error)
        lines = (f"error: {words}", *_traceback(found, whose))
        return FailureReport("exit", words, code, lines, full_traceback, is_complete=False)
    cause = cause_table.find(found, context)
    lines = (*_heading(cause, found), *_traceback(found, whose, briefly=cause is not None))
    reason = OUT_OF_MEMORY if is_gpu_out_of_memory(found) else "exception"
    text = _one_line_error(cause, found, whose)
    return FailureReport(reason, text, 1, lines, full_traceback, is_complete=False)


def print_failure(failure: FailureReport, file: Path | None) -> None:
    """Prints a failure to stderr and writes the whole traceback to ``file``. If that fails, the traceback is
    printed instead. Without a file a hint is printed how to see the traceback."""
    rest = None
    if not failure.is_complete:
        rest = _DEBUG_HINT if file is None else _write_traceback(failure.full_traceback, file)
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
    except OSError:  # most likely a full disk, which must not hide the error
        return None
    return f"the whole traceback: {file}"


def _full_traceback(error: BaseException) -> str:
    return escape_control("".join(traceback.format_exception(error)).rstrip("\n"))


def report(
    error: BaseException,
    *,
    own: Sequence[Path],
    package: Path | None,
    file: Path | None,
    retry: str = _SAME_COMMAND,
) -> FailureReport:
    """Explains an error (`explain`) and prints it (`print_failure`). If the explanation itself fails, both
    errors are printed as Python prints them, so that it never hides the first one."""
    try:
        failure = explain(error, own=own, package=package, retry=retry)
        print_failure(failure, file)
    except Exception:  # noqa: BLE001  - both errors are printed
        traceback.print_exc()
        code = error.exit_code if isinstance(error, RoostError) else 1
        return FailureReport("exception", single_line(type(error).__name__), code, (), "", is_complete=True)
    return failure


# --- a lost rank: reported by the supervisor ----------------------------------------------------------------

_TORCH_RANK_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")
_CONNECTION_LOST = re.compile(
    "connection (was likely )?closed|connection reset|connection refused|broken pipe|timed out|time-?out|"
    "remote process exited|remote error|communicator was aborted|got 0 bytes|pair closure",
    re.IGNORECASE,
)


def is_peer_loss(error: BaseException) -> bool:
    """Whether an error only means that another rank does not answer any more. gloo raises RuntimeErrors that
    are recognised by their text, NCCL and the store have error classes of their own."""
    if isinstance(error, PeerLost):
        return True
    of_torch = any(kind.__name__ in _TORCH_RANK_ERRORS for kind in type(error).__mro__)
    text = str(error)
    is_ranks = of_torch or (isinstance(error, RuntimeError) and "gloo" in text)
    return is_ranks and _CONNECTION_LOST.search(text) is not None


def _peer_loss_message(error: BaseException) -> str:
    """Returns torch's message without its addresses and advice: the supervisor knows which rank is gone."""
    found = _CONNECTION_LOST.search(str(error))
    return f"another rank is gone: {found[0].lower()}" if found else "another rank is gone"


# --- a mistake of the user: one line ------------------------------------------------------------------------


def _is_roost_file_error(error: BaseException) -> bool:
    """Whether an OSError comes from roost's own files (durable writes, files of the package), not from code
    that roost called: the innermost roost module of its traceback is in `roost.base` or `roost.package`."""
    if not isinstance(error, OSError):
        return False
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.startswith("roost.")]
    return bool(own) and own[-1].startswith(("roost.base.", "roost.package."))


def _user_error_report(
    error: BaseException,
    found: ExceptionRecord,
    own: ProjectFiles,
    context: FailureContext,
    full_traceback: str,
    retry: str,
) -> FailureReport:
    text = found.text_with_notes
    code = error.exit_code if isinstance(error, RoostError) else 1
    if isinstance(error, OSError):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "make space" if is_full else "check the disk and the permissions"
        text = with_fix(f"a file of roost's own: {text}", f"{fix}, then {retry}")
    # An error of roost with a fix is complete; a cause would repeat it.
    is_open = isinstance(error, RoostError) and error.fix is None
    cause = cause_table.find(found, context) if is_open else None
    # Names the project's line that caused the error. A plain RoostError needs none: the project raised it on
    # purpose, or roost.download raised it for the project.
    at_fault = type(error) is not RoostError and own.innermost_line(found)
    where = traceback_frames.format_project_frames(found, own) if at_fault else []
    lines = (
        *where,
        f"error: {escape_control(text)}",
        *([escape_control(cause.description)] if cause else []),
    )
    return FailureReport(MISTAKE, single_line(text), code, lines, full_traceback, is_complete=True)


# --- an exception in the project's code ---------------------------------------------------------------------


def _early_exit(error: SystemExit | KeyboardInterrupt) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):  # never from a signal, see StopSignals
        return "the project's code raised KeyboardInterrupt before its work was done", 1
    shown = "" if error.code is None else truncate(repr(error.code))
    code = error.code & 0xFF if isinstance(error.code, int) else 1
    is_reserved = code in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)  # these have a meaning in roost
    return (
        f"the project's code called sys.exit({escape_control(shown)}) before its work was done",
        1 if is_reserved else code,
    )


def _heading(cause: Cause | None, found: ExceptionRecord) -> Iterator[str]:
    if cause is None:
        return
    yield f"error: {escape_control(cause.description)}" + (f" ({found.raised_in})" if found.raised_in else "")
    if cause.fix:
        yield f"fix: {escape_control(cause.fix)}"


def _traceback(found: ExceptionRecord, own: ProjectFiles, *, briefly: bool = False) -> Iterator[str]:
    yield "Traceback of the project's own lines (most recent call last):"
    yield from traceback_frames.format_chain(found, own, first_line_only=briefly)


def _one_line_error(cause: Cause | None, found: ExceptionRecord, own: ProjectFiles) -> str:
    return (
        single_line(cause.description)
        if cause is not None
        else traceback_frames.exception_summary(found, own)
    )
