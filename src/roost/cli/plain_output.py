"""The screen of a followed run where nothing can be drawn: pipes, files and simple terminals."""

from __future__ import annotations

import sys
from typing import IO

from roost.display import terminal


class PlainScreen:
    """Prints output unchanged, as it arrives.

    Args:
        to: The stream; stdout when None.
    """

    def __init__(self, to: IO[str] | None = None) -> None:
        self._to, self._open = to or sys.stdout, True
        self._decode = terminal.OutputDecoder() if terminal.shows_text(self._to) else None

    def write(self, output: bytes) -> None:
        if not self._open:
            return
        try:
            terminal.write_bytes(self._decode(output).encode() if self._decode else output, self._to)
        except (OSError, ValueError):
            # The reader closed the pipe (`| head`), or the disk is full. The run's exit code is still worth
            # waiting for.
            self._open = False

    def print_status(self, text: str) -> None:
        terminal.print_status(text)

    def tick(self) -> None:
        return

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def close(self) -> None:
        return
