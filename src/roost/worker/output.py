"""What a worker prints must never end it: on a full disk output is lost, training is not."""

from __future__ import annotations

import io
import os
import sys


class Unfailing(io.RawIOBase):
    """Writes to a descriptor and passes over what the disk refuses; once it takes something again, says how
    much is missing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lost = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        try:
            if self._lost:
                os.write(self._fd, f"\nroost: {self._lost} bytes of output were lost: disk full\n".encode())
                self._lost = 0
            return os.write(self._fd, view)
        except OSError:
            self._lost += view.nbytes
            return view.nbytes


def protect() -> None:
    """Makes `print` and tracebacks of this process unfailing. Libraries that write to the descriptor
    themselves are not touched."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        buffered = io.BufferedWriter(Unfailing(stream.fileno()), buffer_size=1)
        text = io.TextIOWrapper(
            buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
        )
        setattr(sys, name, text)
