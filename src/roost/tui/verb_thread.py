"""Carries out command lines one after the other in a thread: the verbs of the shells block."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from roost.base.errors import RoostError

if TYPE_CHECKING:
    from roost.shell.lab_connection import LabConnection
    from roost.shell.verb_runner import VerbRunner


class VerbListener(NamedTuple):
    """The callbacks of `VerbThread`, which it calls in its thread."""

    wrote: Callable[[str], None]
    """A piece of output."""
    failed: Callable[[str], None]
    """A line failed, for the reason in the text."""
    ended: Callable[[VerbRunner], None]
    """A line has ended; the runner says what is watched now, and whether the client is to leave."""


class VerbThread:
    """A thread with a `VerbRunner`, which begins with the first line.

    Args:
        connect: Returns the connection; called in the thread.
        listener: The callbacks.
        is_read_only: Whether verbs that change something are refused.
    """

    def __init__(
        self, connect: Callable[[], LabConnection], listener: VerbListener, *, is_read_only: bool
    ) -> None:
        self._connect, self._listener, self._is_read_only = connect, listener, is_read_only
        self._lines: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._runner: VerbRunner | None = None
        self._has_begun = False

    def run(self, line: str, width: int) -> None:
        """Carries out a line after those before.

        Args:
            line: The line.
            width: The characters of a line of its output.
        """
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._work, name="verbs", daemon=True).start()
        self._lines.put((line, width))

    def call(self, body: Callable[[LabConnection], None]) -> None:
        """Calls a function with the connection, in a thread of its own: a completion must not wait for a line
        that runs.

        Args:
            body: The function; a `RoostError` of it ends it.
        """

        def work() -> None:
            try:
                body(self.runner().connection)
            except RoostError:
                return

        threading.Thread(target=work, name="completion", daemon=True).start()

    def runner(self) -> VerbRunner:
        """Returns the runner; connects if it is not there yet.

        Raises:
            RoostError: As the connection.
        """
        if self._runner is None:
            from roost.shell.verb_runner import VerbRunner

            self._runner = VerbRunner(self._connect(), follows=False, is_read_only=self._is_read_only)
        return self._runner

    def _work(self) -> None:
        while True:
            line, width = self._lines.get()
            try:
                runner = self.runner()
                runner.width = width
                for piece in runner.run(line):
                    self._listener.wrote(piece)
            except RoostError as error:
                self._listener.failed(str(error))
            except Exception as error:  # noqa: BLE001  - a mistake in a verb must not end the client
                self._listener.failed(f"{type(error).__name__}: {error} (a bug in roost)")
            if self._runner is not None:
                self._listener.ended(self._runner)
