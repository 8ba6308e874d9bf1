"""Stdout and stderr of a command in the cell of a notebook."""

from __future__ import annotations

import io
from typing import IO

_MAX_CHARACTERS = 1_000_000
_LEFT_OUT = "\n… the rest is left out, for a notebook keeps all of it; type the command in a terminal\n"


class CellStream(io.TextIOBase):
    """Writes to the output of a cell, up to a million characters: a notebook keeps all of it.

    Args:
        cell: The stream of the kernel, which takes no bytes; both streams of a command go to the same one,
            in their order.
    """

    encoding = "utf-8"

    def __init__(self, cell: IO[str]) -> None:
        self._cell = cell
        self._free = _MAX_CHARACTERS

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._free > 0:
            self._cell.write(text[: self._free])
            self._free -= len(text)
            if self._free <= 0:
                self._cell.write(_LEFT_OUT)
        return len(text)

    def flush(self) -> None:
        self._cell.flush()
