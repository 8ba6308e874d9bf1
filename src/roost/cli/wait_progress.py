"""Screens for work that goes through stages and has no progress bar: they name the current stage when no
output arrives."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Protocol

from roost.cli.plain_output import PlainScreen
from roost.display import terminal

_QUIET_SECONDS, _LINE_SECONDS, _DRAW_SECONDS = 1.0, 10.0, 0.1


class StageOutcome(Protocol):
    """The result of work that goes through stages."""

    @property
    def state(self) -> str:
        """The state of its session."""

    @property
    def failed(self) -> str | None:
        """The stage that did not finish."""

    @property
    def error(self) -> str | None:
        """The error, in one line."""

    @property
    def reason(self) -> str | None:
        """The supervisor's reason, where there is no error."""


class StageScreen(PlainScreen):
    """Prints output to stderr as it arrives; on a terminal, a line names the current stage after each second
    without output, until there is more output.

    Args:
        stage: Returns the current stage; empty if it is unknown.
    """

    def __init__(self, stage: Callable[[], str]) -> None:
        super().__init__(sys.stderr)
        self._stage = stage
        self._draws = terminal.can_draw(sys.stderr)
        self._since, self._shown = monotonic(), ""
        self._drawn = 0.0

    def write(self, output: bytes) -> None:
        self._clear()
        super().write(output)
        self._since = monotonic()

    def tick(self) -> None:
        """Redraws the line when it has changed, at most ten times a second."""
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
    """The progress of long work: drawn on a terminal, elsewhere printed every ten seconds."""

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
    """Yields a function that shows a text about progress; it may be called at any rate."""
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
    with contextlib.suppress(OSError, ValueError):  # the terminal is closed
        terminal.write_bytes(text.encode(), sys.stderr)


def format_unfinished(outcome: StageOutcome, *, is_printed: bool, what: str) -> str:
    """Returns a line about work that failed or was stopped.

    Args:
        outcome: The result of the work.
        is_printed: Whether the output has already shown the error.
        what: The name of the work.
    """
    state, at = terminal.format_state(outcome.state), f" at {outcome.failed}" if outcome.failed else ""
    if outcome.state == "stopped":
        return f"{state}{at}: the {what} left no files"
    if is_printed:
        return f"{state}{at}"
    return f"{state}{at}: {terminal.escape_text(outcome.error or outcome.reason or 'no reason is known')}"
