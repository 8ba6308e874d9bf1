"""Following a run where nothing can be drawn."""

from __future__ import annotations

import sys

from roost.cli import terminal


class Plain:
    """Output as it comes, on stdout: for pipes, files and logs."""

    def __init__(self) -> None:
        self._open = True
        self._decode = terminal.Decoder() if sys.stdout.isatty() else None

    def write(self, output: bytes) -> None:
        if not self._open:
            return
        try:
            terminal.write(self._decode(output).encode() if self._decode else output)
        except (OSError, ValueError):
            # `| head` has seen enough, or the disk is full. The run's exit code is still worth waiting for.
            self._open = False

    def say(self, text: str) -> None:
        terminal.say(text)

    def tick(self) -> None:
        return

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def close(self) -> None:
        return
