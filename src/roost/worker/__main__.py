"""The process that does one task: ``python -P -m roost.worker PACKAGE SESSION``, started by a supervisor."""

from __future__ import annotations

import errno
import os
import sys
import threading
import traceback
from typing import NamedTuple, NoReturn

from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE, NotFound, RoostError
from roost.worker import output
from roost.worker.report import Report
from roost.worker.stop import StopSignals

_MAX_ERROR = 4000
"""Characters of an error that are reported; what a person's code puts into one may be of any size."""


def main(arguments: list[str]) -> int:
    """Runs the session and reports its end; gives the exit code.

    One line for what a person can mend, a traceback for an error of the project's own code; with
    ``ROOST_DEBUG=1`` in the environment always a traceback.
    """
    output.protect()
    report = Report()
    stop = StopSignals()  # before the long imports: a stop that comes during them is not lost
    try:
        reason = _run(arguments, stop)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  - told, then reported
        end = _failure(error)
        if end.in_full or os.environ.get("ROOST_DEBUG") == "1":
            traceback.print_exc()
        if not end.in_full or end.reason == "exit":
            print(f"error: {end.text}", file=sys.stderr)
        sys.stderr.flush()
        return report.final("failed", exit_code=end.exit_code, reason=end.reason, error=end.text)
    if reason == "finished":
        return report.final("succeeded", exit_code=0, reason=reason)
    return report.final("stopped", exit_code=STOPPED_EXIT_CODE, reason=reason)


_LEAVE_SECONDS = 10.0


class _Failure(NamedTuple):
    """How a failure is told; ``in_full``: with its traceback, because the project's own code is at fault."""

    reason: str
    text: str
    exit_code: int = 1
    in_full: bool = False


def _failure(error: BaseException) -> _Failure:
    text = _noted(error)
    if isinstance(error, RoostError):
        return _Failure("error", text, error.exit_code)
    if isinstance(error, OSError) and _is_own(error):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "make space" if is_full else "look at the disk and its rights"
        return _Failure("error", f"a file of roost's own: {text}. To mend it: {fix}, then `roost continue`")
    if isinstance(error, SystemExit):
        said = f"the project's code called sys.exit({_shown(error.code)}) before the run had ended"
        code = error.code & 0xFF if isinstance(error.code, int) else 1
        is_taken = code in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)  # roost gives these a meaning
        return _Failure("exit", said, 1 if is_taken else code, in_full=True)
    if isinstance(error, KeyboardInterrupt):  # no signal makes one here, see StopSignals
        said = "the project's code raised KeyboardInterrupt before the run had ended"
        return _Failure("exit", said, in_full=True)
    return _Failure("exception", f"{type(error).__name__}: {text}", in_full=True)


def _is_own(error: OSError) -> bool:
    """Whether roost's durable writes or files of the package raised it, and not what roost called: the last
    of roost's modules on the way there is one of base or package."""
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.startswith("roost.")]
    return bool(own) and own[-1].startswith(("roost.base.", "roost.package."))


def _shown(code: object) -> str:
    return "" if code is None else repr(code)[:_MAX_ERROR]


def _noted(error: BaseException) -> str:
    text = "; ".join([str(error), *getattr(error, "__notes__", [])])
    return text if len(text) <= _MAX_ERROR else text[:_MAX_ERROR] + " …"


def _run(arguments: list[str], stop: StopSignals) -> str:
    from roost.package import progress
    from roost.package.package import Package

    path, number = arguments
    package = Package.open(path)
    progress.reset(package.progress)
    from roost.worker.training import train  # imports torch, a second or two

    found = [session for session in package.sessions() if session.number == int(number)]
    if not found:
        raise NotFound(f"there is no session {number}", where=package.path)
    return train(package, found[0], stop)


def leave(code: int) -> NoReturn:
    """Exits. All is told: a thread of the project's that never ends must not keep the run "running"."""
    deadline = threading.Timer(_LEAVE_SECONDS, os._exit, [code])
    deadline.daemon = True
    deadline.start()
    sys.exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
