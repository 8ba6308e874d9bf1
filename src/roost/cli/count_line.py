"""The line that shows the progress of work on many things, on a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time

import click

from roost.display import terminal

_QUIET_SECONDS, _DRAW_SECONDS = 1.0, 0.1


class CountLine:
    """Draws ``reading packages: 1,200 of 10,000`` to stderr once the work takes longer than a second, and
    removes it at the end of the work. Nothing is drawn where lines cannot be redrawn.

    Args:
        quiet_seconds: How long the work may take without a line; None: a second.
    """

    def __init__(self, quiet_seconds: float | None = None) -> None:
        self._quiet_seconds = _QUIET_SECONDS if quiet_seconds is None else quiet_seconds
        self._draws = terminal.can_draw(sys.stderr)
        self._what, self._next_time = "", 0.0
        self._is_shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows the progress; see `roost.operations.work_progress.Show`."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._next_time = what, now + self._quiet_seconds
        if done >= total:
            self.remove()
        elif self._draws and now >= self._next_time:
            self._next_time = now + _DRAW_SECONDS
            text = terminal.truncate(f"{what}: {done:,} of {total:,}", shutil.get_terminal_size().columns)
            self._write(f"\r\x1b[K{text}")
            self._is_shown = True

    def remove(self) -> None:
        """Removes the line if it is shown."""
        self._what = ""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            click.echo(text, err=True, nl=False, color=True)
