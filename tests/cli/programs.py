"""Starts the real program: with pipes, or on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import MAX_SECONDS

ROOST = [sys.executable, "-m", "roost.cli"]


def roost(*arguments: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end."""
    return subprocess.run(
        [*ROOST, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=90,
    )


class Terminal:
    """A command on a terminal of 100 columns, whose keys a test presses."""

    def __init__(
        self, *arguments: object, cwd: Path | None = None, program: Sequence[str] = ROOST, **env: str
    ) -> None:
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **env},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(other)
        self.seen = ""

    def wait_for(self, text: str, timeout_seconds: float = MAX_SECONDS) -> str:
        """Reads until ``text`` was shown; gives everything so far."""
        deadline = time.monotonic() + timeout_seconds
        while text not in self.seen:
            if not self._read(deadline - time.monotonic()):
                raise TimeoutError(f"{text!r} was not shown; the end of what was: {self.seen[-2000:]!r}")
        return self.seen

    def type(self, text: str) -> None:
        """Types a line and presses Enter."""
        os.write(self.fd, text.encode() + b"\n")

    def press_ctrl_c(self) -> None:
        os.write(self.fd, b"\x03")

    def press_ctrl_c_until(self, text: str) -> None:
        """Presses Ctrl-C until ``text`` is shown: readline overlooks one that comes as it begins to wait."""
        for _ in range(20):
            self.press_ctrl_c()
            try:
                self.wait_for(text, 3.0)
            except TimeoutError:
                continue
            return
        raise TimeoutError(f"{text!r} was not shown; the end of what was: {self.seen[-2000:]!r}")

    def press_ctrl_c_until_end(self) -> None:
        """Presses Ctrl-C until the program ends: one during a line of a shell ends only the line."""
        for _ in range(20):
            self.press_ctrl_c()
            try:
                self.process.wait(3.0)
            except subprocess.TimeoutExpired:
                continue
            return
        raise TimeoutError(f"it has not ended; the end of what was shown: {self.seen[-2000:]!r}")

    def hang_up(self) -> None:
        """The terminal is gone, as when its window is closed."""
        os.close(self.fd)
        self.fd = -1

    def end(self) -> tuple[int, str]:
        """Waits for the program; gives its exit code and everything that was shown."""
        while self._read(60.0):
            continue
        code = self.process.wait(100)
        self.hang_up()
        return code, self.seen

    def _read(self, timeout_seconds: float) -> bool:
        if not select.select([self.fd], [], [], max(0.0, timeout_seconds))[0]:
            return False
        try:
            piece = os.read(self.fd, 1 << 16)
        except OSError:  # EIO: no process has the terminal open any more
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def kill(self) -> None:
        """Makes sure that nothing is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.fd >= 0:
            self.hang_up()
