"""The part of `bench/client.py` with a terminal: when a program paints, how fast a key has its effect, what
it costs while nothing happens."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_COLUMNS, _ROWS = 120, 40
CLIENT = (sys.executable, "-m", "roost", "client")
_BARE = """
from textual.app import App
from textual.widgets import OptionList

class Bare(App):
    def compose(self):
        yield OptionList(*[f"line {number} of a list, as long as that of a task" for number in range(30)])

Bare().run()
"""
BARE_TEXTUAL = (sys.executable, "-c", _BARE)
"""The least that a program on the same library costs."""
_SELECTED = re.compile(rb"\xe2\x96\x8c(?:[^\n]{0,200}?)([A-Z]_\d+)")
"""The mark of the selected row, and the label of its task."""


class ProgramOnTerminal:
    """A program on a pseudo-terminal, and when it wrote what."""

    def __init__(self, command: Sequence[str]) -> None:
        self.begin = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8")
            os.environ.pop("NO_COLOR", None)
            os.execvp(command[0], list(command))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.output = b""
        self.has_ended = False
        """Whether it has closed the terminal."""

    def read_until(self, condition: Callable[[bytes], bool], seconds: float) -> float | None:
        """Reads until a condition holds for the whole output; returns the seconds since the start."""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            ready, _, _ = select.select([self.fd], [], [], 0.05)
            if ready:
                try:
                    self.output += os.read(self.fd, 1 << 16)
                except OSError:
                    self.has_ended = True
                    return None
                if condition(self.output):
                    return time.perf_counter() - self.begin
        return None

    def press(self, key: bytes) -> float:
        """Presses a key; returns the time."""
        at = time.perf_counter()
        os.write(self.fd, key)
        return at

    def cpu_seconds(self) -> float:
        """The CPU time of the program and of the processes below it."""
        return sum(map(_cpu_seconds, [self.pid, *_children(self.pid)]))

    def close(self) -> None:
        """Ends the program."""
        for number in (signal.SIGTERM, signal.SIGKILL):  # a peer may ignore the first one
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            deadline = time.perf_counter() + 5
            while time.perf_counter() < deadline:
                self.read_until(lambda _: False, 0.1)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self.fd)
                    return


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, found) for one in (child, *_children(child))]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_start(times: int) -> list[str]:
    """Returns when the client paints: its frame, its views, the tasks."""
    found: dict[str, list[float]] = {"first paint": [], "views and keys": [], "tasks": []}
    for _ in range(times):
        program = ProgramOnTerminal(CLIENT)
        conditions = (lambda out: b"connecting" in out, lambda out: b"F4 Tasks" in out, _SELECTED.search)
        for name, condition in zip(found, conditions, strict=True):
            if (
                seconds := program.read_until(lambda out, condition=condition: bool(condition(out)), 20)
            ) is not None:
                found[name].append(seconds)
        program.close()
    return [f"{statistics.median(one) * 1e3:.0f} ms" if one else "never" for one in found.values()]


def measure_keys(times: int) -> tuple[str, str]:
    """Returns how long a key takes to its effect on the screen, while tasks change: median, 95 %."""
    program = ProgramOnTerminal(CLIENT)
    program.read_until(lambda out: bool(_SELECTED.search(out)), 20)
    program.read_until(lambda _: False, 2.0)
    seconds = []
    for number in range(times):
        before = _SELECTED.findall(program.output)[-1]
        program.output = b""
        at = program.press(b"j")
        if (
            program.read_until(
                lambda out, before=before: any(one != before for one in _SELECTED.findall(out)), 5
            )
            is None
        ):
            continue
        seconds.append(time.perf_counter() - at)
        program.read_until(lambda _: False, 0.03 + 0.01 * (number % 5))
    program.close()
    if not seconds:
        return "never", "never"
    seconds.sort()
    worst = seconds[int(0.95 * len(seconds))]
    return f"{statistics.median(seconds) * 1e3:.1f} ms", f"{worst * 1e3:.1f} ms"


def measure_cpu(seconds: float) -> tuple[str, str]:
    """Returns what the client costs while nobody touches it: its part of a core, and what it paints."""
    program = ProgramOnTerminal(CLIENT)
    program.read_until(lambda out: b"F4 Tasks" in out, 20)
    program.read_until(lambda _: False, 8.0)
    begin, cpu_begin, bytes_begin = time.perf_counter(), program.cpu_seconds(), len(program.output)
    program.read_until(lambda _: False, seconds)
    wall = time.perf_counter() - begin
    share = (program.cpu_seconds() - cpu_begin) / wall
    painted = (len(program.output) - bytes_begin) / wall / 1e3
    program.close()
    return f"{share:.2%}", f"{painted:.1f} kB/s"


class Measured(NamedTuple):
    """Of a program: seconds to its first paint, and from a key to its next output; its part of a core."""

    first: float
    key: float | None
    share: float


def measure_in_turn(commands: Mapping[str, Sequence[str]], times: int) -> dict[str, Measured | None]:
    """Measures programs that are started in turn; None: it ends at once."""
    rounds: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            if (found := _measure_once(command)) is not None:
                rounds[name].append(found)
    return {name: _medians(found) if found else None for name, found in rounds.items()}


def _measure_once(command: Sequence[str]) -> Measured | None:
    program = ProgramOnTerminal(command)
    try:
        first = program.read_until(lambda out: len(out) > 500, 20)
        program.read_until(lambda _: False, 5.0)
        if first is None or program.has_ended:
            return None
        keys = []
        for key in (b"\x1b[B", b"\x1b[A") * 10:  # down, up
            before, at = len(program.output), program.press(key)
            if program.read_until(lambda out, before=before: len(out) > before, 1.0) is not None:
                keys.append(time.perf_counter() - at)
            program.read_until(lambda _: False, 0.15)
        begin, cpu_begin = time.perf_counter(), program.cpu_seconds()
        program.read_until(lambda _: False, 10.0)
        share = (program.cpu_seconds() - cpu_begin) / (time.perf_counter() - begin)
        return Measured(first, statistics.median(keys) if len(keys) >= 10 else None, share)
    finally:
        program.close()


def _medians(rounds: Sequence[Measured]) -> Measured:
    """Returns the medians of rounds; of the CPU time the mean, as its clock has only a tenth of a percent."""
    keys = [one.key for one in rounds if one.key is not None]
    return Measured(
        statistics.median(one.first for one in rounds),
        statistics.median(keys) if keys else None,
        statistics.mean(one.share for one in rounds),
    )
