"""The worker process, which runs one task: ``python -P -m roost.worker PACKAGE TASK [SESSION]``.

==================  ================================================================================
TASK                what the worker runs
==================  ================================================================================
a number            training: the session of that number
a folder            the request in that folder: an analysis, a prediction or an export of weights, for a
                    process that waits for it
a folder, SESSION   the request in that session folder (`roost.package.session_folder`): an analyzer, a
                    prediction or an evaluation; SESSION is the number of the attempt there
``check``           a shortened run that goes through every stage once
``data``            a report on the sets and their batches
``tune``            measurements of other settings
``debug VISIT``     a step in pdb, on the terminal of the command that exec'ed this process
==================  ================================================================================

A supervisor starts all of them but ``debug``, and gets a final report from each.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from roost.base.errors import STOPPED_EXIT_CODE, NotFound
from roost.base.system import process_title, spin_limit
from roost.base.system.collector_pause import paused_collector
from roost.base.system.worker_protocol import EARLY_STOP, OUT_OF_MEMORY
from roost.package.kinds import PackageKind, TaskKind
from roost.worker import worker_output, worker_signals
from roost.worker.debug.breakpoints import Debugger
from roost.worker.final_report import FinalReport
from roost.worker.worker_signals import StopSignals

if TYPE_CHECKING:
    from roost.worker.failure_report import FailureReport

_EXIT_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Runs the task and returns the exit code."""
    spin_limit.set_default()
    path, task, *rest = arguments
    if task == TaskKind.DEBUG:
        # Ctrl-C during torch's imports ends the process at once: as a KeyboardInterrupt it would look like an
        # error of torch.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
        from roost.worker.debug import debug_task

        signal.signal(signal.SIGINT, interrupt)
        return debug_task.main(path, *rest)
    return _run_supervised(path, task, int(rest[0]) if rest else None)


def _run_supervised(path: str, task: str, session: int | None = None) -> int:
    """Runs a task and writes its final report.

    Args:
        path: The package.
        task: As on the command line.
        session: The number of the session, of a task of the lab with a session folder.
    """
    process_title.set_title("worker", path)
    worker_output.tolerate_full_disk()
    worker_signals.register_stack_dump()
    report = FinalReport()
    debugger = Debugger(has_terminal=sys.stdin.isatty())
    try:
        reason = _run_task(path, task, session)
    except BaseException as error:  # noqa: BLE001  - printed and reported; a project may raise any
        if debugger.was_quit(error):
            return report.write("stopped", exit_code=STOPPED_EXIT_CODE, reason="quit in pdb")
        end, memory = _report_failure(error, path, task, session), _card_usage(task, error)
        if end.reason in ("exception", OUT_OF_MEMORY):
            debugger.inspect_error(error, Path(path))
        return report.write(
            "failed", exit_code=end.exit_code, reason=end.reason, error=end.error, memory=memory
        )
    memory = _card_usage(task)
    if reason in ("finished", EARLY_STOP):
        return report.write("succeeded", exit_code=0, reason=reason, memory=memory)
    from roost.package.sessions import INITIALIZED  # already loaded by the task

    if reason == INITIALIZED:  # as requested; the run can be continued
        return report.write("stopped", exit_code=0, reason=reason)
    return report.write("stopped", exit_code=STOPPED_EXIT_CODE, reason=reason, memory=memory)


def _card_usage(task: str, error: BaseException | None = None) -> dict[str, Any] | None:
    """Returns the card memory that a training task used; None for other tasks."""
    from roost.worker import card_memory

    return card_memory.usage(error) if _task_kind(task) is TaskKind.TRAIN else None


def _task_kind(task: str) -> TaskKind:
    """Returns the kind of a task; if it is a folder, that of the request there."""
    if task.isdecimal():
        return TaskKind.TRAIN
    if task in (TaskKind.CHECK, TaskKind.DATA_REPORT, TaskKind.TUNE):
        return TaskKind(task)
    from roost.package import sessions

    return TaskKind.of(sessions.load_json(Path(task) / "request.json") or {})


def _run_task(path: str, task: str, session: int | None) -> str:
    """Runs the task and returns "finished", "early stop", or the reason of the stop."""
    kind = _task_kind(task)
    if kind is TaskKind.TRAIN:
        return _train(path, int(task))
    from roost.package.dlnest.original_package import open_any

    package = open_any(path)
    if kind is TaskKind.CHECK:
        from roost.worker.check.check_task import check

        return check(package)
    if kind is TaskKind.DATA_REPORT:
        from roost.worker.data_report.data_task import report_data

        return report_data(package)
    if kind is TaskKind.TUNE:
        from roost.worker.tuning.tuning_task import tune

        return tune(package)
    if kind is TaskKind.EXPORT:
        with paused_collector():
            from roost.worker.results.export_task import export
        return export(package, Path(task))
    if kind is TaskKind.PREDICT:
        with paused_collector():
            from roost.worker.results.predict_task import predict
        return predict(package, Path(task), session)
    if kind is TaskKind.EVALUATE:
        assert session is not None, "an evaluation has a session folder"
        with paused_collector():
            from roost.worker.results.evaluate_task import evaluate
        return evaluate(package, Path(task), session)
    if session is not None:
        with paused_collector():
            from roost.worker.analyzer.analyzer_task import run_analyzer
        return run_analyzer(package, Path(task))
    with paused_collector():
        from roost.worker.analyze_task import analyze

    return analyze(package, Path(task))


def _train(path: str, number: int) -> str:
    # Installed before the long imports, so that a stop signal during them is not lost. The other tasks have
    # nothing to save: a signal ends their process.
    stop = StopSignals()
    from roost.package import live_progress
    from roost.package.package import PackageFolder

    package = PackageFolder.open(path)
    live_progress.reset(package.progress)
    session = next((one for one in package.sessions() if one.number == number), None)
    if session is None:
        raise NotFound(f"there is no session {number}", where=package.path)
    # Either import loads torch, a second or two.
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        with paused_collector():
            from roost.worker import dlnest_task

        return dlnest_task.train(package, session, stop)
    with paused_collector():
        from roost.worker import train_task

    return train_task.train(package, session, stop)


def _report_failure(error: BaseException, path: str, task: str, session: int | None) -> FailureReport:
    """Explains and prints an error of a task, and keeps the whole traceback."""
    from roost.worker import failure_report  # imported here: a successful run does not need it

    package = Path(path).absolute()
    own, file, kind = [package], None, _task_kind(task)
    if session is not None:
        from roost.package import sessions
        from roost.worker.ranks import rank_environment

        this_rank = rank_environment.read_rank_environment()
        file = sessions.traceback_file(Path(task), session, this_rank.rank if this_rank is not None else 0)
        return failure_report.report(error, own=own, package=package, file=file)
    if not kind.keeps_traceback:
        return failure_report.report(error, own=own, package=package, file=file)
    if kind is TaskKind.TRAIN:
        from roost.package import sessions
        from roost.worker.ranks import rank_environment

        this_rank = rank_environment.read_rank_environment()
        file = sessions.traceback_file(package, int(task), this_rank.rank if this_rank is not None else 0)
        return failure_report.report(error, own=own, package=package, file=file, retry="`roost continue`")
    from roost.analysis import analysis_folder

    own, file = [package, analysis_folder.script_folder(Path(task))], Path(task) / analysis_folder.TRACEBACK
    return failure_report.report(error, own=own, package=package, file=file)


def exit_process(code: int) -> NoReturn:
    """Exits within `_EXIT_SECONDS`. The end is reported already: a thread of the project that never ends must
    not keep the run "running"."""
    deadline = threading.Timer(_EXIT_SECONDS, os._exit, [code])
    deadline.daemon = True
    deadline.start()
    sys.exit(code)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
