"""The terminal is as before, however the client ends."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

_PROGRAM = """
import os, select, signal, sys, time, tty
from roost.base.errors import Refused
from roost.tui.terminal_guard import run_guarded

def body():
    tty.setraw(0)
    os.write(1, b"\\x1b[?1049h\\x1b[?25l\\x1b[?1003hready %d." % os.getpid())
    {body}

code = run_guarded(body)
if select.select([0], [], [], 0)[0]:
    os.write(1, b"typed " + os.read(0, 100))
os.write(1, b"<code %d>" % code)
"""


class GuardedProgram:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path, body: str) -> None:
        program = folder / "program.py"
        program.write_text(_PROGRAM.replace("{body}", textwrap.indent(body, "    ").strip()))
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, str(program)])
        os.set_blocking(self.fd, False)
        self.output = b""
        self.before = termios.tcgetattr(self.fd)

    def read(self) -> bytes:
        """What was written so far."""
        try:
            while piece := os.read(self.fd, 65536):
                self.output += piece
        except (BlockingIOError, OSError):
            pass
        return self.output

    def client_pid(self) -> int:
        """The process that the guard watches."""
        wait_for(lambda: b"ready" in self.read() and b"." in self.output.partition(b"ready ")[2])
        return int(self.output.partition(b"ready ")[2].partition(b".")[0])

    def end(self, typed: bytes = b"") -> int:
        """Waits for the end, and checks that the terminal is restored, and that it has what was typed."""
        wait_for(lambda: os.waitpid(self.pid, os.WNOHANG)[0])
        output = self.read()
        assert (b"typed " + typed in output) == bool(typed)
        assert output.rfind(b"\x1b[?1049l") > output.rfind(b"\x1b[?1049h")
        assert output.rfind(b"\x1b[?25h") > output.rfind(b"\x1b[?25l")
        assert output.rfind(b"\x1b[?1003l") > output.rfind(b"\x1b[?1003h")
        assert termios.tcgetattr(self.fd)[3] & termios.ECHO == self.before[3] & termios.ECHO
        assert termios.tcgetattr(self.fd)[3] & termios.ICANON
        return (
            int(output.rpartition(b"<code ")[2].partition(b">")[0])
            if b"<code " in output.rpartition(b"\x1b[?1049l")[2]
            else -1
        )


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Callable[[str], GuardedProgram]]:
    programs: list[GuardedProgram] = []

    def start(body: str) -> GuardedProgram:
        programs.append(GuardedProgram(tmp_path, body))
        return programs[-1]

    yield start
    for one in programs:
        os.close(one.fd)


Start = Callable[[str], GuardedProgram]


_LEAVE = 'os.write(1, b"\\x1b[?1003l\\x1b[?1049l\\x1b[?25h")\n'


def test_an_orderly_end(guarded: Start) -> None:
    assert guarded(f"{_LEAVE}return 5").end() == 5


def test_what_is_typed_while_the_client_leaves_is_not_lost(guarded: Start) -> None:
    program = guarded(f"{_LEAVE}os.write(1, b'left')\nselect.select([0], [], [])\nreturn 3\n")
    wait_for(lambda: b"left" in program.read())
    os.write(program.fd, b"next command\n")
    assert program.end(b"next command") == 3


def test_a_client_that_is_killed(guarded: Start) -> None:
    program = guarded("time.sleep(60)")
    os.kill(program.client_pid(), signal.SIGKILL)
    assert program.end() == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_the_client(guarded: Start, number: signal.Signals) -> None:
    program = guarded("time.sleep(60)")
    program.client_pid()
    os.kill(program.pid, number)
    assert program.end() == 128 + number


def test_a_client_that_hangs_is_killed(guarded: Start) -> None:
    program = guarded(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.write(1, b'deaf')\nwhile True: time.sleep(1)"
    )
    program.client_pid()
    wait_for(lambda: b"deaf" in program.read())
    os.kill(program.pid, signal.SIGTERM)
    assert program.end() == 128 + signal.SIGKILL


def test_an_exception_is_printed_below_the_restored_screen(guarded: Start) -> None:
    program = guarded("raise ValueError('boom')")
    assert program.end() == 1
    assert program.output.rfind(b"ValueError: boom") > program.output.rfind(b"\x1b[?1049l")


def test_a_mistake_of_the_user_keeps_its_text_and_code(guarded: Start) -> None:
    program = guarded("raise Refused('the token is wrong')")
    program.end()
    assert b"the token is wrong" in program.output
    assert program.output.count(b"Traceback") == 1  # of this program, which does not catch it


def test_a_stopped_client_stops_its_guard_and_both_go_on(guarded: Start) -> None:
    program = guarded(f"os.kill(os.getpid(), signal.SIGSTOP)\n{_LEAVE}return 7")
    program.client_pid()
    wait_for(lambda: _state(program.pid) == "T")
    os.kill(program.pid, signal.SIGCONT)
    assert program.end() == 7


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
