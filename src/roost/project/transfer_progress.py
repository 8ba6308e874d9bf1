"""The progress of a transfer, on stderr."""

from __future__ import annotations

import os
import sys
import time


class TransferProgress:
    """Prints the progress of a download, or of another work on many bytes: a line that is redrawn on a
    terminal, otherwise a line each few seconds.

    Args:
        name: The file, or what is done with it.
        total: The number of bytes; None: unknown.
        every_seconds: The seconds from one line to the next, where they are not redrawn.
    """

    def __init__(self, name: str, total: int | None, *, every_seconds: float = 1.0) -> None:
        self.received = 0
        self._name, self._total = name, total
        self._on_terminal = sys.stderr.isatty()
        self._every_seconds = 0.1 if self._on_terminal else every_seconds
        self._began = self._shown = time.monotonic()

    def add(self, count: int) -> None:
        """Counts ``count`` more bytes."""
        self.received += count
        now = time.monotonic()
        if now - self._shown >= self._every_seconds:
            self._shown = now
            self._show(now)

    def close(self) -> None:
        """Prints the final progress."""
        self._show(time.monotonic())
        if self._on_terminal:
            _print("")

    def _show(self, now: float) -> None:
        size, unit = (2**20, "MB") if (self._total or self.received) >= 2**20 else (2**10, "kB")
        there, speed = self.received / size, self.received / size / max(now - self._began, 1e-3)
        text, bar = f"{there:.1f} {unit}", ""
        if self._total:
            share = min(self.received / self._total, 1.0)
            text = f"{there:.1f} of {self._total / size:.1f} {unit}, {share:.0%}"
            bar = f"[{'#' * int(24 * share):24}] "
        if not self._on_terminal:
            _print(f"{self._name}: {text}, {speed:.1f} {unit}/s")
            return
        line = f"{self._name} {bar}{text}, {speed:.1f} {unit}/s"
        width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        print(f"\r{line[:width]:{width}}", end="", file=sys.stderr, flush=True)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
