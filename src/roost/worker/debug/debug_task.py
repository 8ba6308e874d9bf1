"""``roost debug``: replays a run up to one step and stops there in pdb, on the user's terminal.

The command replaces itself by this process (exec): ``python -P -m roost.worker PACKAGE debug TARGET``. It
takes no lock and changes nothing in the package, which may be running."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from roost.base.errors import INTERRUPTED_EXIT_CODE, UsageError
from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.base.traceback_frames import ProjectFiles
from roost.package.package import PackageFolder
from roost.package.results import black_box
from roost.package.results.black_box import BlackBox, DebugTarget
from roost.project import native_project
from roost.project.device_choice import choose_device
from roost.worker import analyze_task, failure_report, torch_settings
from roost.worker.debug import post_mortem, replay
from roost.worker.debug.breakpoints import Debugger
from roost.worker.debug.failing_step import EarlierNonFiniteStep, FailingStepHook
from roost.worker.debug.post_mortem import DebuggerQuit
from roost.worker.debug.replay import PackageAsOfSession


def main(path: str, target: str) -> int:
    """Replays up to the step and stops there. Returns the exit code: 0 if pdb stopped in the step, or if the
    step was not expected to fail."""
    Debugger(has_terminal=True)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _end)
    package = PackageFolder.open(path)
    try:
        return _replay(package, msgspec.json.decode(target, type=DebugTarget))
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    except Exception as error:  # noqa: BLE001  - the replay runs the project's code
        failure = failure_report.report(error, own=[package.path], package=package.path, file=None)
        if failure.reason in ("exception", OUT_OF_MEMORY):
            post_mortem.inspect_error(error, ProjectFiles([package.path]))
        return failure.exit_code


def _end(number: int, _: FrameType | None) -> NoReturn:
    """Ends the process when the terminal is gone."""
    signal.signal(number, signal.SIG_DFL)  # a second signal ends it at once
    raise SystemExit(128 + number)


def _replay(package: PackageFolder, target: DebugTarget) -> int:
    box = black_box.find_box(package.blackbox, target.box) if target.box is not None else None
    if box is not None:
        _print_failure(box)
    as_of, device = PackageAsOfSession(package.path, target.session), choose_device(target.device)
    _, settings = native_project.resolve_settings(as_of, target.project)
    torch_settings.apply(settings, device=device, first=analyze_task.initial_environment(package))
    is_nonfinite = box is not None and box.note.kind != "error"
    while True:
        try:
            return _replay_once(as_of, target, box, device=device, is_nonfinite=is_nonfinite)
        except EarlierNonFiniteStep as found:
            _print(
                f"\r\x1b[Kin step {found.step} a gradient is not finite already: replaying up to that step"
            )
            target = msgspec.structs.replace(target, step=found.step)


def _replay_once(
    package: PackageAsOfSession, target: DebugTarget, box: BlackBox | None, *, device: str, is_nonfinite: bool
) -> int:
    start = replay.find_start(package, target, box)
    for line in start.notes:
        _print(line)
    if start.is_box and box is not None:
        _print(f"its state{' and its batch' if box.has_batch else ''}: {Path(*box.path.parts[-2:])}")
    known = box if box is not None and box.note.step == target.step else None
    arrival = FailingStepHook(target, known, start, ProjectFiles([package.path]), is_nonfinite=is_nonfinite)
    with replay.replay_trainer(package, target, start, device=device, hook=arrival) as trainer:
        try:
            with arrival.quiet():
                trainer.fit()
        except DebuggerQuit:
            return arrival.exit_code
        last = trainer.progress.step
    raise UsageError(f"the run ends with step {last}", setting="STEP", received=target.step)


def _print_failure(box: BlackBox) -> None:
    note = box.note
    what = "failed" if note.kind == "error" else "was not finite"
    _print(f"step {note.step} of session {note.session} {what}: {note.error}")
    _print(note.location)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
