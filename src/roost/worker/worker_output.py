"""Output streams that survive a full disk: the output is lost, the training continues."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class DiskFullTolerantOutput(io.RawIOBase):
    """Writes to a file descriptor and drops what the disk refuses. The first write that succeeds again is
    preceded by a line with the number of lost bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lost = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: object, /) -> int:
        view = remaining = memoryview(data).cast("B")  # type: ignore[arg-type]
        try:
            if self._lost:
                os.write(self._fd, f"\nroost: {self._lost} bytes of output were lost: disk full\n".encode())
                self._lost = 0
            while remaining:
                remaining = remaining[os.write(self._fd, remaining) :]
        except OSError:
            self._lost += remaining.nbytes
        return view.nbytes


def tolerate_full_disk() -> None:
    """Replaces stdout and stderr of this process by `DiskFullTolerantOutput`. Libraries that write to the
    file descriptors directly are not affected."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        raw: Any = DiskFullTolerantOutput(stream.fileno())  # unbuffered: a kill must not lose output
        setattr(
            sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        )
