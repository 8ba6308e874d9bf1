"""Following a run from a terminal: the one that started it, or another. The run needs none of this."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Protocol, Self, TypeVar

from roost.base.system.worker_protocol import EARLY_STOP, OUT_OF_MEMORY, TIME_LIMIT
from roost.cli import terminal
from roost.cli.plain_output import PlainScreen
from roost.lab.sessions.session_control import request_stop
from roost.operations.sessions.running_session import RunningSession, follow
from roost.operations.sessions.session_request import StartedSession
from roost.package import lineage, live_progress, sessions
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import skipped_steps
from roost.package.sessions import INITIALIZED, Session
from roost.supervisor.guard_start import GuardProcess

_STARTED_LINE = "session {} runs by itself, with or without this terminal; Ctrl-C saves and stops it"
_PDB_LINE = "session {} has this terminal, for pdb; Ctrl-C saves and stops it"
_ATTACHED_LINE = "session {}, attached; Ctrl-C asks whether to detach or to stop it"
_QUESTION = "d: detach, the run goes on   s: save and stop it   any other key: go on watching"


class Screen(Protocol):
    """Where output goes while a run is followed."""

    def write(self, output: bytes) -> None:
        """Shows what the run printed."""

    def print_status(self, text: str) -> None:
        """Shows a line of ours."""

    def tick(self) -> None:
        """Comes by twenty times a second."""

    def pause(self) -> None:
        """Leaves the terminal to a question."""

    def resume(self) -> None:
        """Goes on after it."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


T_co = TypeVar("T_co", covariant=True)


class AwaitedWorker(Protocol[T_co]):
    """A worker beside a package or a project, which ends with this program."""

    @property
    def running(self) -> RunningSession:
        """What runs."""

    @property
    def process(self) -> GuardProcess:
        """To be waited for."""

    @property
    def notes(self) -> list[str]:
        """What a person should hear first, one line each."""

    def outcome(self, ended: Session) -> T_co:
        """What came of it."""


class InterruptAnswer(Protocol):
    """What is done about Ctrl-C and SIGTERM."""

    def __call__(self, running: RunningSession, screen: Screen, number: int) -> bool:
        """Answers the ``number``-th of them in this session; gives whether to go on watching."""


class _InterruptCounter:
    """Counts Ctrl-C and SIGTERM. SIGHUP keeps its meaning: the terminal is gone, this program goes, the run
    stays."""

    def __init__(self) -> None:
        self.number = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number += 1

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def show_started(started: StartedSession) -> int:
    """Shows what an operation started until it ends; gives the exit code of the program.

    If it started nothing, its notes are said and that is all.
    """
    shown = terminal.format_path(started.package)
    if started.running is None:
        terminal.print_status("\n".join([*started.notes, shown]))
        return 0
    has_terminal = bool(started.running.session().request.get("terminal"))
    if has_terminal:
        # The run reads from this terminal without belonging to its jobs: paused, we would only let the shell
        # read along with it.
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    code = watch(started.running, stop_or_end, _PDB_LINE if has_terminal else _STARTED_LINE, started.notes)
    if started.process is not None:
        started.process.wait()
    return code


def report_detached(started: StartedSession) -> int:
    """Says where the run is, and leaves it alone; the package's path is the only thing on stdout."""
    shown = terminal.format_path(started.package)
    for note in started.notes:
        terminal.print_status(note)
    print(shown)
    if started.running is not None:
        again = terminal.quote_path(started.package)
        terminal.print_status(f"session {started.session} runs by itself; to watch it: roost attach {again}")
    return 0


def show_attached(running: RunningSession) -> int:
    """Shows a session that runs already; gives its exit code, 0 for a person who left before its end."""
    return watch(running, detach_or_stop, _ATTACHED_LINE)


def watch(
    running: RunningSession, answer: InterruptAnswer, first_line: str, notes: Iterable[str] = ()
) -> int:
    """Shows a session until it ends; gives its exit code."""
    shown = terminal.format_path(running.package)
    with _InterruptCounter() as pressed:  # before the line that tells of Ctrl-C
        terminal.print_status(f"{shown}: {first_line.format(running.number)}")
        for note in notes:
            terminal.print_status(note)
        ended = _watch(running, _screen(running), answer, pressed)
    if ended is None:
        again = terminal.quote_path(running.package)
        terminal.print_status(f"detached; the run goes on. To watch it again: roost attach {again}")
        return 0
    _report_end(
        PackageFolder.open(running.package), ended, terminal.quote_path(running.package), running.output
    )
    code = (ended.record or {}).get("exit_code")
    return code if isinstance(code, int) else 1


def watch_to_end(running: RunningSession, screen: Screen, answer: InterruptAnswer) -> Session:
    """Shows what it prints until it ends, and says nothing about it."""
    with _InterruptCounter() as pressed:
        ended = _watch(running, screen, answer, pressed)
    assert ended is not None, "this answer never leaves"
    return ended


def _watch(
    running: RunningSession, screen: Screen, answer: InterruptAnswer, pressed: _InterruptCounter
) -> Session | None:
    """The session when it has ended; None when nobody watches any more."""
    answered = before = 0
    try:
        for event in follow(running):
            if isinstance(event, Session):
                return event
            if isinstance(event, RunningSession):  # restarted, which the output tells
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
    """Follows a worker that this program waits for; Ctrl-C ends it at once. Gives what came of it, and
    whether its output holds the error already. To be called inside of the worker's block."""
    for note in started.notes:
        terminal.print_status(note)
    ended = watch_to_end(started.running, screen, end_at_once)
    started.process.wait()
    return started.outcome(ended), output_shows_error(started.running.output, ended.error)


def stop_or_end(running: RunningSession, screen: Screen, number: int) -> bool:
    """For whoever started it: the first saves and stops, the second ends it at once."""
    if number <= 2:
        request_stop(running.session(), now=number == 2)
        screen.print_status(
            "saving at the next step edge; Ctrl-C again ends it at once" if number == 1 else "ending at once"
        )
    return True


def end_at_once(running: RunningSession, screen: Screen, number: int) -> bool:
    """For what has nothing to save."""
    session = running.session()
    if session.state == "running":
        request_stop(session, now=True)
    return True


def detach_or_stop(running: RunningSession, screen: Screen, number: int) -> bool:
    """For whoever came by later: asks, where somebody can answer; otherwise detaches."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    screen.pause()
    key = terminal.read_key(_QUESTION)
    screen.resume()
    if key == "s":
        request_stop(running.session())
        screen.print_status("saving at the next step edge")
    return key not in ("d", "\x03", "\x04", "")  # Ctrl-C once more, Ctrl-D, a closed stdin


def _screen(running: RunningSession) -> Screen:
    session = running.session()
    undrawable = not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    if undrawable or session.request.get("terminal"):  # which the run has for itself, for pdb
        return PlainScreen()
    from roost.cli.progress_bar import BarScreen  # rich, 45 ms

    began = (session.record or {}).get("started")
    return BarScreen(running.package, running.number, began=began)


_TAIL_BYTES = 1 << 16
_RANK_ERROR = re.compile(r"rank (\d+) failed: ")
"""An error that the session's supervisor says of another rank than 0."""
_TRACEBACK_FRAME = re.compile(r'^  File "(.+)", line \d', re.MULTILINE)
_ERROR_START_CHARACTERS = 60
"""Characters of an error by which it is found again; a long one is printed in several lines."""


def output_shows_error(output: Path, error: str | None) -> bool:
    """Whether the output ends with an error already, as it does unless the disk was full or the process had
    no time to say anything."""
    if not error:
        return False
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
            first = error.partition("; ")[0]  # its notes stand in lines of their own
            return first[:_ERROR_START_CHARACTERS].encode() in file.read()
    except OSError:
        return False


def _report_end(package: PackageFolder, session: Session, shown: str, output: Path) -> None:
    record = session.record or {}
    state, took = terminal.format_state(session.state), terminal.format_duration(record.get("seconds"))
    last = _newest_metrics(package)
    why = f" ({record['reason']})" if record.get("reason") in (EARLY_STOP, TIME_LIMIT) else ""
    if session.state == "succeeded":
        terminal.print_status(f"{state}{why} in {took}  {last}".rstrip())
        terminal.print_status(f"package: {shown}")
    elif record.get("reason") == INITIALIZED:
        terminal.print_status(f"{INITIALIZED} in {took}")
        terminal.print_status(f"to train: roost continue {shown}")
    elif session.state == "stopped":
        terminal.print_status(f"{state}{why}{_at_step(package)}  {last}".rstrip())
        terminal.print_status(f"to go on: roost continue {shown}")
    else:
        if output_shows_error(output, session.error):
            terminal.print_status(f"{state}{_at_step(package)} after {took}")
        else:
            terminal.print_status(f"{state}: {terminal.escape_text(session.error or 'no reason is known')}")
            terminal.print_status(f"output: {terminal.format_path(output)}")
        terminal.print_status(_next_action(package, session, shown))


def _at_step(package: PackageFolder) -> str:
    seen = live_progress.read(package.progress)
    return f" at step {seen.step}" if seen else ""


def _next_action(package: PackageFolder, session: Session, shown: str) -> str:
    """A run works from its copy of the code: without a checkpoint there is nothing in it to go on with."""
    if _is_misfit_fork(package, session):
        return (
            "this fork cannot go on: fork again without the change, or begin a new run with what fits: "
            "init_from: {path: PACKAGE, strict: false}"
        )
    if checkpoint.ids(package.checkpoints):
        if (session.record or {}).get("reason") not in ("exception", OUT_OF_MEMORY):
            return f"to go on, once mended: roost continue {shown}"
        return (
            f"to go on: mend the run's own copy, {_failing_file(package, session, shown)}, then "
            f"roost continue {shown} --force; or mend the project and `roost run` it anew"
        )
    return (
        "no checkpoint yet: mend the project and `roost run` it again; "
        f"for a setting alone: roost continue {shown} KEY=VALUE"
    )


_MISFIT_ERROR = "the checkpoint does not fit"


def _is_misfit_fork(package: PackageFolder, session: Session) -> bool:
    """Whether a fork has only what it was made with, and that does not fit."""
    if _MISFIT_ERROR not in (session.error or "") or lineage.parent_of(package) is None:
        return False
    return all(
        info.session == lineage.INHERITED_SESSION for info in checkpoint.read_manifests(package.checkpoints)
    )


def _failing_file(package: PackageFolder, session: Session, shown: str) -> str:
    """The innermost file of the package on the way to the error."""
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
    """The newest values, those of the test first, then of the validation."""
    order = {"test": 0, "valid": 1, "train": 2}
    columns = package.records()
    steps = len(skipped_steps.read(package.path / skipped_steps.NAME, columns.starts))
    newest = columns.last()
    if steps or not newest.get(_SKIPPED, 1.0):  # how many the last row counts tells little
        newest.pop(_SKIPPED, None)
    last = sorted(newest.items(), key=lambda one: order.get(one[0].partition("/")[0], 3))
    shown = [f"{name} {terminal.format_number(value)}" for name, value in last[:_MAX_METRICS]]
    if more := len(last) - len(shown):
        shown.append(f"… {more} more")
    return "  ".join([*shown, *([f"{steps} step{'s' * (steps != 1)} skipped"] if steps else [])])
