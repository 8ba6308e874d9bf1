"""The process that does one task, started by a supervisor: ``python -P -m roost.worker PACKAGE SESSION``, or
``PACKAGE FOLDER`` for an analysis, or ``PACKAGE check`` for a check. ``PACKAGE debug VISIT`` has no
supervisor: the command of a person has become this process."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from roost.base.errors import STOPPED_EXIT_CODE, NotFound
from roost.worker import output, stacks
from roost.worker.debugger import Debugger
from roost.worker.report import Report
from roost.worker.stop import StopSignals

if TYPE_CHECKING:
    from roost.worker.failure import Failure


def main(arguments: list[str]) -> int:
    """Does the task and reports its end; gives the exit code."""
    if arguments[1:2] == ["debug"]:
        from roost.worker import debug

        return debug.main(arguments[0], arguments[2])
    output.protect()
    stacks.register()
    report = Report()
    debugger = Debugger(has_terminal=sys.stdin.isatty())
    try:
        reason = _run(*arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  - told, then reported
        if debugger.was_left(error):
            return report.final("stopped", exit_code=STOPPED_EXIT_CODE, reason="quit in pdb")
        end = _told(error, *arguments)
        if end.reason == "exception":
            debugger.look_at(error)
        return report.final("failed", exit_code=end.exit_code, reason=end.reason, error=end.error)
    if reason == "finished":
        return report.final("succeeded", exit_code=0, reason=reason)
    return report.final("stopped", exit_code=STOPPED_EXIT_CODE, reason=reason)


_LEAVE_SECONDS = 10.0
_CHECK = "check"


def _told(error: BaseException, path: str, task: str) -> Failure:
    from roost.worker import failure  # costs a successful run nothing

    package = Path(path).absolute()
    if task == _CHECK:
        from roost.worker import check

        return check.told(error, package)
    if task.isdecimal():
        own, file = [package], package / "sessions" / f"{task}.traceback.txt"
    else:
        from roost.analysis import folder

        own = [package, folder.script_folder(Path(task))]
        file = Path(task) / folder.TRACEBACK
    return failure.told(error, own=own, package=package, file=file)


def _run(path: str, task: str) -> str:
    # Before the long imports: a stop that comes during them is not lost. An analysis has nothing to save, so
    # a signal ends it.
    stop = StopSignals() if task.isdecimal() else None
    from roost.package import progress
    from roost.package.package import Package

    package = Package.open(path)
    if task == _CHECK:
        from roost.worker.check import check

        return check(package)
    if stop is None:
        from roost.worker.analysis import analyze

        return analyze(package, Path(task))
    progress.reset(package.progress)
    from roost.worker.training import train  # imports torch, a second or two

    found = [session for session in package.sessions() if session.number == int(task)]
    if not found:
        raise NotFound(f"there is no session {task}", where=package.path)
    return train(package, found[0], stop)


def leave(code: int) -> NoReturn:
    """Exits. All is told: a thread of the project's that never ends must not keep the run "running"."""
    deadline = threading.Timer(_LEAVE_SECONDS, os._exit, [code])
    deadline.daemon = True
    deadline.start()
    sys.exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
