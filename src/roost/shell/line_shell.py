"""The line shell: reads lines from a terminal or a pipe, and carries out their verbs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Generator, Iterator
from types import FrameType

import click

from roost.base.errors import INTERRUPTED_EXIT_CODE, RoostError
from roost.base.text.word_list import join_names
from roost.display import table, terminal
from roost.lab.queue.task import ENDED
from roost.shell.lab_connection import LabConnection
from roost.shell.verb_runner import VerbRunner

GREETING = "Waiting for command..."
"""The first line, as DLNest's shells print it."""
_TICK_SECONDS = 0.1
_TOOLKIT = "prompt_toolkit"


class LineShell:
    """Reads and carries out lines until ``exit`` or the end of the input. No error ends it.

    Args:
        connection: The lab.
        name: The name of the shell, in the prompt.
        ends_its_tasks: Whether leaving the shell, also by Ctrl-C, ends the tasks that were started in it,
            after asking.
    """

    def __init__(self, connection: LabConnection, *, name: str, ends_its_tasks: bool) -> None:
        self._connection, self._name, self._ends_its_tasks = connection, name, ends_its_tasks
        self._runner = VerbRunner(connection)
        has_streams = sys.stdin is not None and sys.stdout is not None  # None: closed by who started it
        self._is_terminal = has_streams and sys.stdin.isatty() and sys.stdout.isatty()
        self._exit_code = 0

    def run(self) -> int:
        """Runs the shell; returns the exit code: 0, or of lines from a pipe that of the first error.

        A signal that ends the shell on a terminal leaves its tasks running, and the terminal as before.
        """
        with _restored_terminal() if self._is_terminal else contextlib.nullcontext():
            return self._run()

    def _run(self) -> int:
        _write(f"{GREETING}\n")
        read_line = self._terminal_reader() if self._is_terminal else _read_piped
        leaves = False
        while not leaves:
            try:
                leaves = self._read_and_carry_out(read_line)
            except KeyboardInterrupt:
                if self._is_terminal and not self._ends_its_tasks:
                    terminal.print_status("exit or Ctrl-D leaves the shell")
                elif self._may_leave():
                    return self._exit_code if self._is_terminal else INTERRUPTED_EXIT_CODE
        return self._exit_code

    def _read_and_carry_out(self, read_line: Callable[[str], str]) -> bool:
        """Reads and carries out a line, or several that were pasted; returns whether to leave the shell."""
        try:
            typed = read_line(self._prompt())
        except EOFError:
            return self._may_leave()
        for line in typed.removesuffix("\n").split("\n"):  # `splitlines` would make verbs of parts of a text
            self._carry_out(line)
            if self._runner.wants_exit:
                self._runner.wants_exit = False
                if self._may_leave():
                    return True
        return False

    def _prompt(self) -> str:
        watched = f" {self._runner.watched}" if self._runner.watched is not None else ""
        return f"{self._name}{watched}> "

    def _carry_out(self, line: str) -> None:
        """Carries out a line, and shows what it gives, or its error."""
        self._runner.width = table.terminal_width()
        pieces = self._runner.run(line)
        try:
            _show(pieces)
        except BrokenPipeError:
            raise
        except (RoostError, OSError) as error:
            self._fail(error, getattr(error, "exit_code", 1))
        except KeyboardInterrupt:
            terminal.print_status("interrupted")
        except Exception as error:  # noqa: BLE001  - a shell with running tasks must not end by a bug
            self._fail(RoostError(f"{type(error).__name__}: {error} (a bug in roost)"), 1)

    def _fail(self, error: RoostError | OSError, exit_code: int) -> None:
        terminal.print_error(terminal.escape_name(str(error)))
        if not self._is_terminal:
            self._exit_code = self._exit_code or exit_code

    def _may_leave(self) -> bool:
        """Ends the tasks of the shell if leaving it does that, on a terminal after asking; returns False if
        the user stays."""
        if not self._ends_its_tasks:
            return True
        try:
            unended = self._unended()
            if not unended:
                return True
            if self._is_terminal and not _confirm(f"save and end {join_names(list(unended.values()))}?"):
                return False
            self._end_tasks(unended)
        except (RoostError, OSError) as error:
            terminal.print_error(terminal.escape_name(str(error)))
        except KeyboardInterrupt:
            terminal.print_status("the tasks end in the background")
        return True

    def _unended(self) -> dict[str, str]:
        """Returns the labels of the tasks of this shell that have not ended, by their ids."""
        started = set(self._connection.started)
        if not started:
            return {}
        rows = self._connection.list_tasks()
        return {row.id: row.label for row in rows if row.id in started and row.state not in ENDED}

    def _end_tasks(self, unended: dict[str, str]) -> None:
        """Asks tasks to save and end, and waits until they have."""
        for id in unended:
            with contextlib.suppress(RoostError):  # it has ended meanwhile
                self._connection.stop_task(id)
        terminal.print_status(f"{join_names(list(unended.values()))}: asked to save and end")
        while self._unended():
            time.sleep(_TICK_SECONDS)

    def _terminal_reader(self) -> Callable[[str], str]:
        """Returns what reads lines from the terminal: with history, completion and a menu if prompt_toolkit
        is installed and the terminal can draw."""
        if not terminal.can_draw(sys.stdout):
            return input
        if importlib.util.find_spec(_TOOLKIT) is None:
            text = f"without completion and history, which need {_TOOLKIT}: pip install 'roost[shell]'"
            terminal.print_status(text)
            return input
        from roost.shell import prompt_session

        return prompt_session.create(self._connection, lambda: self._runner.watched)


@contextlib.contextmanager
def _restored_terminal() -> Iterator[None]:
    """Restores the modes of the terminal at the end, also after a signal that would end the process at once:
    what reads a line has switched the echo off."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def leave(number: int, frame: FrameType | None) -> None:
        # An exception would not do: the loop of prompt_toolkit, suspended by Ctrl-Z, waits on after it.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers = {number: signal.signal(number, leave) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _read_piped(prompt: str) -> str:
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line:
        raise EOFError
    return line


def _show(pieces: Generator[str, None, None]) -> None:
    """Writes pieces of text as they come. Ctrl-C while one is written reaches what makes them, as it does
    while one is made."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            piece = next(pieces) if interrupt is None else pieces.throw(interrupt)
        except StopIteration:
            return
        interrupt = None
        try:
            _write(piece)
        except KeyboardInterrupt as pressed:
            interrupt = pressed


def _write(text: str) -> None:
    sys.stdout.write(text if terminal.allows_colours(sys.stdout) else click.unstyle(text))
    sys.stdout.flush()


def _confirm(question: str) -> bool:
    """Asks on the terminal. Ctrl-C means no; the end of the input means yes, as no answer can come."""
    try:
        return input(f"{terminal.escape_name(question)} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return True
    except KeyboardInterrupt:
        terminal.print_status("")
        return False
