"""Following a run from the terminal that started it. The run needs none of this: it goes on without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Protocol, Self

from roost.cli import terminal
from roost.cli.plain import Plain
from roost.operations.logs import read_from
from roost.operations.starting import Started
from roost.package import checkpoint, progress
from roost.package.package import Package
from roost.package.sessions import Session

_TICK_SECONDS = 0.05
_FIRST_LINE = "session {} runs by itself, with or without this terminal; Ctrl-C saves and stops it"


class Screen(Protocol):
    """Where output goes while a run is followed."""

    def write(self, output: bytes) -> None:
        """Shows what the run printed."""

    def say(self, text: str) -> None:
        """Shows a line of ours."""

    def tick(self) -> None:
        """Comes by twenty times a second."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


class Asked:
    """Ctrl-C and SIGTERM, passed on to the supervisor: the first saves and stops, the second ends at once.

    SIGHUP keeps its meaning: the terminal is gone, this program goes, the run stays.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._arrived = 0
        self._passed_on = 0
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived += 1

    def pass_on(self, screen: Screen) -> None:
        """Sends on what has arrived since the last call; the process must not be reaped yet."""
        while self._passed_on < min(self._arrived, 2):
            self._passed_on += 1
            first = self._passed_on == 1
            os.kill(self._process.pid, signal.SIGTERM if first else signal.SIGQUIT)
            screen.say(
                "saving at the next step edge; Ctrl-C again ends it at once" if first else "ending at once"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def follow(started: Started) -> int:
    """Shows a session until it ends; gives the exit code of the program.

    Args:
        started: What an operation started; if it started nothing, its notes are said and that is all.
    """
    shown = terminal.short(started.package)
    if started.process is None or started.session is None:
        terminal.say("\n".join([*started.notes, shown]))
        return 0
    with Asked(started.process) as asked:
        for note in started.notes:
            terminal.say(note)
        terminal.say(f"{shown}: {_FIRST_LINE.format(started.session)}")
        code = _watch(started, started.process, asked)
    package = Package.open(started.package)
    ended = next(one for one in package.sessions() if one.number == started.session)
    _tell_the_end(package, ended, shown)
    return code


def _watch(started: Started, process: subprocess.Popen[bytes], asked: Asked) -> int:
    output, offset = started.package / "_output.txt", started.output_offset
    screen = _screen(started)
    try:
        while True:
            # Before the output is read: what was printed before the end must not be missed.
            code = process.poll()
            for piece in read_from(output, offset):
                offset += len(piece)
                screen.write(piece)
                if code is None:  # a run that prints without end must still hear a Ctrl-C
                    asked.pass_on(screen)
            if code is not None:
                return code if code >= 0 else 1
            asked.pass_on(screen)
            screen.tick()
            time.sleep(_TICK_SECONDS)
    finally:
        screen.close()


def _screen(started: Started) -> Screen:
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return Plain()
    from roost.cli.bar import Bar  # rich, 45 ms

    return Bar(started.package, started.session or 0)


def _tell_the_end(package: Package, session: Session, shown: str) -> None:
    state = terminal.state(session.state)
    last = _metrics(package)
    if session.state == "succeeded":
        terminal.say(f"{state} in {terminal.duration(_seconds(session))}  {last}".rstrip())
        terminal.say(f"package: {shown}")
    elif session.state == "stopped":
        seen = progress.read(package.progress)
        terminal.say(f"{state} at step {seen.step if seen else 0}  {last}".rstrip())
        terminal.say(f"to go on: roost continue {shown}")
    else:
        terminal.say(f"{state}: {terminal.harmless(session.error or 'no reason is known')}")
        terminal.say(f"output: {terminal.short(package.output)}")
        terminal.say(_what_next(package, shown))


def _what_next(package: Package, shown: str) -> str:
    """A run works from its copy of the code: without a checkpoint there is nothing in it to go on with."""
    if checkpoint.ids(package.checkpoints):
        return f"to go on, once mended: roost continue {shown}"
    return (
        "no checkpoint yet: mend the project and `roost run` it again; "
        f"for a setting alone: roost continue {shown} KEY=VALUE"
    )


def _seconds(session: Session) -> float | None:
    return (session.record or {}).get("seconds")


def _metrics(package: Package) -> str:
    """The newest values, those of the test first, then of the validation."""
    order = {"test": 0, "valid": 1, "train": 2}
    last = sorted(package.records().last().items(), key=lambda one: order.get(one[0].partition("/")[0], 3))
    return "  ".join(f"{name} {terminal.number(value)}" for name, value in last)
