"""How the client gives the terminal away at Ctrl-Z, and takes it back at `fg`."""

from __future__ import annotations

import asyncio
import signal
import termios
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

_LOCAL_MODES = 3
"""The place of the local modes in what `termios.tcgetattr` returns."""


class TerminalDriver(LinuxDriver):
    """Textual's driver, with SIGTSTP and SIGCONT handled between two callbacks of the loop.

    The shell wakes all processes of a job, and the guard wakes its child (`roost.tui.terminal_guard`), so the
    client may receive SIGCONT twice. Textual's handlers run wherever the program is: the second one would
    wait for a lock of the writer that the interrupted code holds, or start a second thread that reads keys.

    Args:
        app: The client.
        more: See `LinuxDriver`.
    """

    def __init__(self, app: Any, **more: Any) -> None:
        super().__init__(app, **more)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._sigtstp_application)
        loop.add_signal_handler(signal.SIGCONT, self._take_terminal_back)

    def _take_terminal_back(self) -> None:
        if self._has_terminal():
            return
        if self._key_thread is not None:  # after a SIGSTOP: it reads on, in the modes of the shell
            self.exit_event.set()
            self._key_thread.join()
            self.exit_event.clear()
        self._sigcont_application()

    def _has_terminal(self) -> bool:
        """Whether keys are read, in the modes of the client."""
        if self._key_thread is None or not self._key_thread.is_alive():
            return False
        try:
            return not termios.tcgetattr(self.fileno)[_LOCAL_MODES] & termios.ICANON
        except termios.error:
            return False
