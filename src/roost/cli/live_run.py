"""Follows a run from the terminal that started it, or from another one. The run itself does not depend on
it."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Protocol, Self, TypeVar

from roost.base.system.worker_protocol import EARLY_STOP, OUT_OF_MEMORY, TIME_LIMIT
from roost.cli import surface as surfaces
from roost.cli.plain_output import PlainScreen
from roost.display import terminal
from roost.lab.sessions.session_control import request_stop
from roost.operations.sessions.running_session import RunningSession, follow, require_not_deleted
from roost.operations.sessions.session_request import StartedSession
from roost.package import lineage, live_progress, sessions
from roost.package.checkpoints import checkpoint
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.results import skipped_steps
from roost.package.sessions import INITIALIZED, Session
from roost.supervisor.guard_start import GuardProcess

_STARTED_LINE = "session {}: {interrupt} saves and stops it; it runs on if {closing}"
_PROGRAM_LINE = "session {}: {interrupt} asks the program to end; it runs on if {closing}"
_PDB_LINE = "session {} uses this terminal, for pdb; Ctrl-C saves and stops it"
_ATTACHED_LINE = "session {}, attached; {attached}"
_QUESTION = "d or Ctrl-C: detach, the run continues   s: save and stop the run   any other key: keep watching"


class Screen(Protocol):
    """The output side of following a run: plain lines, or a progress bar."""

    def write(self, output: bytes) -> None:
        """Shows what the run printed."""

    def print_status(self, text: str) -> None:
        """Shows a status line of this program."""

    def tick(self) -> None:
        """Called twenty times a second while no output arrives."""

    def pause(self) -> None:
        """Clears the terminal for a question."""

    def resume(self) -> None:
        """Continues after the question."""

    def close(self) -> None:
        """Restores the terminal."""


T_co = TypeVar("T_co", covariant=True)


class AwaitedWorker(Protocol[T_co]):
    """A worker that reads a package or a project, and ends with this program."""

    @property
    def running(self) -> RunningSession:
        """The session of the worker."""

    @property
    def process(self) -> GuardProcess:
        """The guard process; it must be waited for."""

    @property
    def notes(self) -> list[str]:
        """Lines that are shown before the output."""

    def outcome(self, ended: Session) -> T_co:
        """Returns the result for the session that has ended."""


class InterruptAnswer(Protocol):
    """The reaction to Ctrl-C and SIGTERM."""

    def __call__(self, running: RunningSession, screen: Screen, number: int) -> bool:
        """Reacts to the ``number``-th signal of this session; returns whether to keep watching."""


class _InterruptCounter:
    """Counts Ctrl-C and SIGTERM. SIGHUP keeps its default action: the terminal is closed, this program ends,
    and the run continues. In a thread, which no signal reaches, nothing is counted."""

    def __init__(self) -> None:
        self.number = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number += 1

    def __enter__(self) -> Self:
        counted = surfaces.current().stop_signals if current_thread() is main_thread() else ()
        self._before = {number: signal.signal(number, self._note) for number in counted}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def show_started(started: StartedSession) -> int:
    """Shows a session that an operation started until it ends; returns the exit code of the program.

    If the operation started no session, only its notes are printed.
    """
    shown = terminal.format_path(started.package)
    if started.running is None:
        terminal.print_status("\n".join([*started.notes, shown]))
        return 0
    request = started.running.session().request
    first_line = _PROGRAM_LINE if TaskKind.of(request) is TaskKind.COMMAND else _STARTED_LINE
    if request.terminal:
        first_line = _PDB_LINE
        # The run reads from this terminal, but is no job of its shell: if Ctrl-Z paused this program, run and
        # shell would both read the input.
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    code = watch(started.running, stop_or_end, first_line, started.notes)
    if started.process is not None:
        if request.remote is not None:
            from roost.cli.upload_wait import show_last_upload

            show_last_upload(started.package, started.process)
        started.process.wait()
    return code


def report_detached(started: StartedSession) -> int:
    """Prints where a detached run is; the package's path is the only output on stdout."""
    shown = terminal.format_path(started.package)
    for note in started.notes:
        terminal.print_status(note)
    print(shown)
    if started.running is not None:
        again = terminal.quote_path(started.package)
        terminal.print_status(
            f"session {started.session} runs in the background; to watch it: {_program()} attach {again}"
        )
    return 0


def show_attached(running: RunningSession) -> int:
    """Shows a session that is already running; returns its exit code, 0 after detaching."""
    return watch(running, detach_or_stop, _ATTACHED_LINE)


def watch(
    running: RunningSession,
    answer: InterruptAnswer,
    first_line: str,
    notes: Iterable[str] = (),
    *,
    to_stderr: bool = False,
) -> int:
    """Shows a session until it ends; returns its exit code, 0 after detaching. With ``to_stderr`` the output
    goes there, because stdout is for results."""
    place = running.output.parent if running.only_reads else running.package
    shown = terminal.format_path(place)
    with _InterruptCounter() as pressed:  # before the line that announces Ctrl-C
        surface = surfaces.current()
        line = first_line.format(
            running.number,
            interrupt=surface.interrupt,
            closing=surface.closing,
            attached=surface.attached,
        )
        terminal.print_status(f"{shown}: {line}")
        for note in notes:
            terminal.print_status(note)
        ended = _watch(running, PlainScreen(sys.stderr) if to_stderr else _screen(running), answer, pressed)
    if ended is None:
        again = terminal.quote_path(place)
        terminal.print_status(f"detached; the run continues. To watch it again: {_program()} attach {again}")
        return 0
    if running.only_reads:
        _report_reader_end(ended, running.output)
    else:
        require_not_deleted(running.package)
        shown = terminal.quote_path(running.package)
        _report_end(PackageFolder.open(running.package), ended, shown, running.output)
    code = ended.recorded.exit_code
    return code if isinstance(code, int) else 1


def watch_to_end(running: RunningSession, screen: Screen, answer: InterruptAnswer) -> Session:
    """Shows the output of a session until it ends, without status lines."""
    with _InterruptCounter() as pressed:
        ended = _watch(running, screen, answer, pressed)
    assert ended is not None, "this answer never detaches"
    return ended


def _watch(
    running: RunningSession, screen: Screen, answer: InterruptAnswer, pressed: _InterruptCounter
) -> Session | None:
    """Returns the session when it has ended; None after detaching."""
    answered = before = 0
    try:
        for event in follow(running):
            if isinstance(event, Session):
                return event
            if isinstance(event, RunningSession):  # restarted; the output reports it
                screen.close()
                running, screen, before = event, _screen(event), answered
            elif event:
                screen.write(event)
            else:
                screen.tick()
            while answered < pressed.number:
                answered += 1
                if not answer(running, screen, answered - before):
                    return None
    finally:
        screen.close()
    raise AssertionError("following ends with a session")


def wait_for_outcome(started: AwaitedWorker[T_co], screen: Screen) -> tuple[T_co, bool]:
    """Follows a worker until it ends; Ctrl-C ends it at once. Must be called inside the worker's ``with``
    block.

    Returns:
        The result, and whether the output has already shown the error.
    """
    for note in started.notes:
        terminal.print_status(note)
    ended = watch_to_end(started.running, screen, end_at_once)
    started.process.wait()
    return started.outcome(ended), output_shows_error(started.running.output, ended.error)


def stop_or_end(running: RunningSession, screen: Screen, number: int) -> bool:
    """The answer of the program that started the run: the first signal saves and stops, the second ends it at
    once."""
    if number <= 2:
        session = running.session()
        request_stop(session, now=number == 2)
        screen.print_status(
            f"{_begun_stop(session)}; {surfaces.current().interrupt} again ends the run at once"
            if number == 1
            else "ending at once"
        )
    return True


def _begun_stop(session: Session) -> str:
    is_program = TaskKind.of(session.request) is TaskKind.COMMAND
    return "the program was asked to end, by SIGTERM" if is_program else "saving at the end of the step"


def end_at_once(running: RunningSession, screen: Screen, number: int) -> bool:
    """The answer for sessions that have nothing to save."""
    session = running.session()
    if session.state == "running":
        request_stop(session, now=True)
    return True


def stop_evaluation(running: RunningSession, screen: Screen, number: int) -> bool:
    """The answer of the program that started an evaluation: the first signal stops it, the second ends it at
    once. Either leaves the rows that are written."""
    if number <= 2:
        request_stop(running.session(), now=number == 2)
        screen.print_status("stopping; the same command goes on")
    return True


def detach_or_stop(running: RunningSession, screen: Screen, number: int) -> bool:
    """The answer of `roost attach`: asks the user if this is a terminal; otherwise detaches."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    screen.pause()
    key = terminal.read_key(_QUESTION)
    screen.resume()
    if key == "s":
        session = running.session()
        request_stop(session)
        screen.print_status(_begun_stop(session))
    return key not in ("d", "\x03", "\x04", "")  # Ctrl-C again, Ctrl-D, a closed stdin


def _screen(running: RunningSession) -> Screen:
    session = running.session()
    has_terminal = bool(session.request.terminal)  # the run uses it itself, for pdb
    is_evaluation = TaskKind.of(session.request) is TaskKind.EVALUATE
    has_bar = is_evaluation or not running.only_reads
    if has_bar and (new_screen := surfaces.current().new_screen) is not None:
        return new_screen(running)
    if has_terminal or not has_bar or not terminal.can_draw(sys.stderr):
        return PlainScreen()
    from roost.cli.progress_bar import BarScreen  # imports rich, 45 ms

    began = session.recorded.started
    unit = "cell" if is_evaluation else "step"
    return BarScreen(running.output.parent, running.number, began=began, unit=unit)


_TAIL_BYTES = 1 << 16
_RANK_ERROR = re.compile(r"rank (\d+) failed: ")
"""How the supervisor begins the error of a rank other than 0."""
_TRACEBACK_FRAME = re.compile(r'^  File "(.+)", line \d', re.MULTILINE)
_ERROR_START_CHARACTERS = 60
"""Characters of an error by which it is found in the output, which breaks a long error into several lines."""


def output_shows_error(output: Path, error: str | None) -> bool:
    """Whether the output already ends with the error. It does, unless the disk was full or the process was
    killed before it could print."""
    if not error:
        return False
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
            first = error.partition("; ")[0]  # its notes are printed on separate lines
            return first[:_ERROR_START_CHARACTERS].encode() in file.read()
    except OSError:
        return False


def _report_reader_end(session: Session, output: Path) -> None:
    """Reports the end of a task that only reads a package."""
    state = (
        f"{terminal.format_state(session.state)} after {terminal.format_duration(session.recorded.seconds)}"
    )
    if session.state in ("failed", "crashed") and not output_shows_error(output, session.error):
        state += f": {terminal.escape_text(session.error or 'no reason is known')}"
    terminal.print_status(f"{state}; {terminal.format_path(output.parent)}")


def _report_end(package: PackageFolder, session: Session, shown: str, output: Path) -> None:
    record = session.recorded
    state, took = terminal.format_state(session.state), terminal.format_duration(record.seconds)
    last = _newest_metrics(package)
    why = f" ({record.reason})" if record.reason in (EARLY_STOP, TIME_LIMIT) else ""
    if session.state == "succeeded":
        terminal.print_status(f"{state}{why} in {took}  {last}".rstrip())
        terminal.print_status(f"package: {shown}")
    elif record.reason == INITIALIZED:
        terminal.print_status(f"{INITIALIZED} in {took}")
        terminal.print_status(f"to train: {_program()} continue {shown}")
    elif session.state == "stopped":
        terminal.print_status(f"{state}{why}{_at_step(package)}  {last}".rstrip())
        terminal.print_status(f"to continue: {_program()} continue {shown}")
    else:
        if output_shows_error(output, session.error):
            terminal.print_status(f"{state}{_at_step(package)} after {took}")
        else:
            terminal.print_status(f"{state}: {terminal.escape_text(session.error or 'no reason is known')}")
            terminal.print_status(f"output: {terminal.format_path(output)}")
        terminal.print_status(_next_action(package, session, shown))


def _program() -> str:
    """Returns how a person types this program here."""
    return surfaces.current().program


def _at_step(package: PackageFolder) -> str:
    seen = live_progress.read(package.progress)
    return f" at step {seen.step}" if seen else ""


def _next_action(package: PackageFolder, session: Session, shown: str) -> str:
    """Returns the line that says how to continue after a failure.

    A run uses the copy of the code in its package; without a checkpoint there is nothing to resume.
    """
    if session.request.kind == TaskKind.COMMAND:
        return f"to start it again, with the code of the package: {_program()} continue {shown}"
    if _is_misfit_fork(package, session):
        return (
            "this fork cannot continue: fork again without the change, or start a new run with the weights "
            "that fit: init_from: {path: PACKAGE, strict: false}"
        )
    if checkpoint.ids(package.checkpoints):
        if session.recorded.reason not in ("exception", OUT_OF_MEMORY):
            return (
                f"after fixing the cause: {_program()} continue {shown}{_dropped_overrides(package, session)}"
            )
        return (
            f"to continue: fix the package's copy of the code, {_failing_file(package, session, shown)}, "
            f"then {_program()} continue {shown} --force; or fix the project and start a new run"
        )
    if package.kept_ids():
        return f"its checkpoints are gone: restore them, or start a new run with `{_program()} run`"
    return (
        f"no checkpoint yet: fix the project and `{_program()} run` it again; "
        f"to change only a setting: {_program()} continue {shown} KEY=VALUE"
    )


def _dropped_overrides(package: PackageFolder, session: Session) -> str:
    """Returns the overrides to type again, because the session failed before its first step."""
    if session.number in [one.number for one in sessions.in_effect(package.path)]:
        return ""
    return "".join(f" {terminal.escape_text(shlex.quote(one))}" for one in session.request.overrides)


_MISFIT_ERROR = "the checkpoint does not fit"


def _is_misfit_fork(package: PackageFolder, session: Session) -> bool:
    """Whether the package is a fork without a checkpoint of its own, and the parent's checkpoint does not
    fit."""
    if _MISFIT_ERROR not in (session.error or "") or lineage.parent_of(package) is None:
        return False
    return all(
        info.session == lineage.INHERITED_SESSION for info in checkpoint.read_manifests(package.checkpoints)
    )


def _failing_file(package: PackageFolder, session: Session, shown: str) -> str:
    """The innermost file of the package in the traceback of the error."""
    rank = int(found[1]) if (found := _RANK_ERROR.match(session.error or "")) else 0
    try:
        whole = sessions.traceback_file(package.path, session.number, rank).read_text(errors="replace")
    except OSError:
        whole = ""
    files = [Path(file) for file in _TRACEBACK_FRAME.findall(whole)]
    own = [file.relative_to(package.path) for file in files if file.is_relative_to(package.path)]
    return terminal.format_path(package.path / own[-1]) if own else f"the code in {shown}"


_SKIPPED = "train/skipped"
_MAX_METRICS = 12


def _newest_metrics(package: PackageFolder) -> str:
    """Formats the newest metrics: test first, then validation, then training."""
    order = {"test": 0, "valid": 1, "train": 2}
    columns = package.records()
    skipped = skipped_steps.read(package.path / skipped_steps.NAME, columns.starts)
    newest = columns.last()
    if skipped or not newest.get(_SKIPPED, 1.0):  # the count of the last row alone would mislead
        newest.pop(_SKIPPED, None)
    last = sorted(newest.items(), key=lambda one: order.get(one[0].partition("/")[0], 3))
    shown = [f"{name} {terminal.format_number(value)}" for name, value in last[:_MAX_METRICS]]
    if more := len(last) - len(shown):
        shown.append(f"… {more} more")
    return "  ".join(filter(None, [*shown, skipped_steps.format_counts(skipped)]))
