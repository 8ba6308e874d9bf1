"""What a worker prints must never end it: on a full disk output is lost, training is not."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class DiskFullTolerantOutput(io.RawIOBase):
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
        view = left = memoryview(data).cast("B")  # type: ignore[arg-type]
        try:
            if self._lost:
                os.write(self._fd, f"\nroost: {self._lost} bytes of output were lost: disk full\n".encode())
                self._lost = 0
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._lost += left.nbytes
        return view.nbytes


def tolerate_full_disk() -> None:
    """Makes `print` and tracebacks of this process unfailing. Libraries that write to the descriptor
    themselves are not touched."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        raw: Any = DiskFullTolerantOutput(
            stream.fileno()
        )  # without a buffer: a kill must not lose what was printed
        setattr(
            sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        )
