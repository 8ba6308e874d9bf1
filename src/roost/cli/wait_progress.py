"""Following something that has nothing to draw, with a word about what it is at when it is silent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Protocol

from roost.cli import terminal
from roost.cli.plain_output import PlainScreen

_QUIET_SECONDS, _LINE_SECONDS, _DRAW_SECONDS = 1.0, 10.0, 0.1


class StageOutcome(Protocol):
    """How something ended that goes through stages."""

    @property
    def state(self) -> str:
        """Of its session."""

    @property
    def failed(self) -> str | None:
        """The stage that it was at."""

    @property
    def error(self) -> str | None:
        """In one line."""

    @property
    def reason(self) -> str | None:
        """The supervisor's, where there is no error."""


class StageScreen(PlainScreen):
    """Output to stderr as it comes; on a terminal, after a second without any, a line that tells what is
    being waited for, until there is more.

    Args:
        stage: Gives what it is at; empty: nobody knows.
    """

    def __init__(self, stage: Callable[[], str]) -> None:
        super().__init__(sys.stderr)
        self._stage = stage
        self._draws = sys.stderr.isatty()
        self._since, self._shown = monotonic(), ""
        self._drawn = 0.0

    def write(self, output: bytes) -> None:
        self._clear()
        super().write(output)
        self._since = monotonic()

    def tick(self) -> None:
        """Draws the line anew when it is another one, ten times a second at most."""
        now = monotonic()
        seconds = now - self._since
        if not self._draws or seconds < _QUIET_SECONDS or now - self._drawn < _DRAW_SECONDS:
            return
        self._drawn = now
        text = f"{terminal.escape_line(self._stage())} … {int(seconds)} s"
        if text != self._shown:
            self._shown = text
            _write_stderr(f"\r\x1b[K{text}")

    def close(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._shown:
            self._shown = ""
            _write_stderr("\r\x1b[K")


class LoggedStageScreen(StageScreen):
    """How far something is that takes long: drawn on a terminal, elsewhere a line now and then."""

    def __init__(self, stage: Callable[[], str]) -> None:
        super().__init__(stage)
        self._next = monotonic() + _LINE_SECONDS

    def tick(self) -> None:
        super().tick()
        if not self._draws and monotonic() > self._next:
            self._next = monotonic() + _LINE_SECONDS
            terminal.print_status(self._stage())


@contextlib.contextmanager
def progress_reports() -> Iterator[Callable[[str], None]]:
    """Gives what tells how far something is, as often as it likes."""
    stage = [""]
    screen = LoggedStageScreen(lambda: stage[0])

    def report(text: str) -> None:
        stage[0] = text
        screen.tick()

    try:
        yield report
    finally:
        screen.close()


def _write_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody looks any more
        terminal.write_bytes(text.encode(), sys.stderr)


def format_unfinished(outcome: StageOutcome, *, is_printed: bool, what: str) -> str:
    """A line about something that failed or was stopped.

    Args:
        outcome: What came of it.
        is_printed: Whether its output holds the error already.
        what: What it was.
    """
    state, at = terminal.format_state(outcome.state), f" at {outcome.failed}" if outcome.failed else ""
    if outcome.state == "stopped":
        return f"{state}{at}: nothing of the {what} is left"
    if is_printed:
        return f"{state}{at}"
    return f"{state}{at}: {terminal.escape_text(outcome.error or outcome.reason or 'no reason is known')}"
