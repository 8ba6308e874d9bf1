"""The process that does one task: ``python -P -m roost.worker PACKAGE TASK``.

==================  ================================================================================
TASK                what is done
==================  ================================================================================
a number            the session of that number: training
a folder            what the request there asks: an analysis, a prediction, an export of weights
``check``           a run in miniature
``data``            a look at the sets and their batches
``debug VISIT``     a visit to a step, on the terminal of the person whose command became this process
==================  ================================================================================

All but ``debug`` are started by a supervisor, and report their end to it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from roost.base.errors import STOPPED_EXIT_CODE, NotFound
from roost.base.system.worker_protocol import EARLY_STOP, OUT_OF_MEMORY
from roost.worker import stack_dump, worker_output
from roost.worker.debug.breakpoints import Debugger
from roost.worker.final_report import FinalReport
from roost.worker.stop_signals import StopSignals

if TYPE_CHECKING:
    from roost.package.package import Package
    from roost.worker.failure_report import FailureReport

_EXIT_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Does the task; gives the exit code."""
    path, task, *rest = arguments
    if task == "debug":
        # Its exception would come up somewhere in torch's imports, as an error of theirs.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
        from roost.worker.debug import debug_task

        signal.signal(signal.SIGINT, interrupt)
        return debug_task.main(path, *rest)
    return _run_supervised(path, task)


def _run_supervised(path: str, task: str) -> int:
    """Does a task and reports its end."""
    worker_output.tolerate_full_disk()
    stack_dump.register()
    report = FinalReport()
    debugger = Debugger(has_terminal=sys.stdin.isatty())
    try:
        reason = _run_task(path, task)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  - told, then reported
        if debugger.was_quit(error):
            return report.write("stopped", exit_code=STOPPED_EXIT_CODE, reason="quit in pdb")
        end, memory = _report_failure(error, path, task), _card_usage(task, error)
        if end.reason in ("exception", OUT_OF_MEMORY):
            debugger.inspect_error(error, Path(path))
        return report.write(
            "failed", exit_code=end.exit_code, reason=end.reason, error=end.error, memory=memory
        )
    memory = _card_usage(task)
    if reason in ("finished", EARLY_STOP):
        return report.write("succeeded", exit_code=0, reason=reason, memory=memory)
    from roost.package.sessions import INITIALIZED  # a task has loaded it

    if reason == INITIALIZED:  # as it was asked to; it may be continued
        return report.write("stopped", exit_code=0, reason=reason)
    return report.write("stopped", exit_code=STOPPED_EXIT_CODE, reason=reason, memory=memory)


def _card_usage(task: str, error: BaseException | None = None) -> dict[str, Any] | None:
    """What a training has taken of its card."""
    from roost.worker import card_memory

    return card_memory.usage(error) if task.isdecimal() else None


def _run_task(path: str, task: str) -> str:
    """Gives "finished", "early stop", or why the task was stopped."""
    if task.isdecimal():
        return _train(path, int(task))
    from roost.package.package import Package

    package = Package.open(path)
    if task == "check":
        from roost.worker.check.check_task import check

        return check(package)
    if task == "data":
        from roost.worker.data_report.data_task import report_data

        return report_data(package)
    return _run_request(Path(task), package)


def _run_request(place: Path, package: Package) -> str:
    kind = _request_kind(place)
    if kind == "export":
        from roost.worker.results.export_task import export

        return export(package, place)
    if kind == "prediction":
        from roost.worker.results.predict_task import predict

        return predict(package, place)
    from roost.worker.analyze_task import analyze

    return analyze(package, place)


def _request_kind(place: Path) -> object:
    """What the request in a folder asks for."""
    from roost.package import sessions

    return (sessions.load(place / "request.json") or {}).get("kind")


def _train(path: str, number: int) -> str:
    # Before the long imports, so that a stop that comes during them is not lost. The other tasks have nothing
    # to save: there a signal ends the process.
    stop = StopSignals()
    from roost.package import progress
    from roost.package.package import Package

    package = Package.open(path)
    progress.reset(package.progress)
    from roost.worker.train_task import train  # imports torch, a second or two

    session = next((one for one in package.sessions() if one.number == number), None)
    if session is None:
        raise NotFound(f"there is no session {number}", where=package.path)
    return train(package, session, stop)


def _report_failure(error: BaseException, path: str, task: str) -> FailureReport:
    """Explains an error of a task, tells it, and keeps the whole traceback."""
    from roost.worker import failure_report  # costs a successful run nothing

    package = Path(path).absolute()
    own, file = [package], None  # nothing is kept where the folder of what failed is removed at its end
    if task.isdecimal():
        from roost.package import sessions
        from roost.worker.ranks import rank_environment

        place = rank_environment.read_rank_environment()
        file = sessions.traceback_file(package, int(task), place.rank if place is not None else 0)
    elif task not in ("check", "data") and _request_kind(Path(task)) not in ("export", "prediction"):
        from roost.analysis import analysis_folder

        own, file = (
            [package, analysis_folder.script_folder(Path(task))],
            Path(task) / analysis_folder.TRACEBACK,
        )
    return failure_report.report(error, own=own, package=package, file=file)


def exit_process(code: int) -> NoReturn:
    """Exits. All is told: a thread of the project's that never ends must not keep the run "running"."""
    deadline = threading.Timer(_EXIT_SECONDS, os._exit, [code])
    deadline.daemon = True
    deadline.start()
    sys.exit(code)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
