"""The server's log: one line for each request, in a file that is rotated before it grows large."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from roost.base import durable

MAX_BYTES = 8 << 20
"""At this size the file is renamed and replaces the one that was rotated before."""
_STDOUT_FD, _STDERR_FD = 1, 2


def rotated_path(path: Path) -> Path:
    """Returns the path of the previous log."""
    return path.with_name(f"{path.name}.1")


class AccessLog:
    """The log to which stdout of this process is redirected, and stderr if it is the same file.

    Args:
        path: The file. If stdout is another file or a terminal, lines go there and nothing is rotated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Writes the line of one request, without its query, headers and body, which may hold secrets."""
        shown = path.encode("unicode_escape").decode("ascii")[:200]
        verb = method if method.isalpha() and len(method) < 10 else "?"
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # a full disk does not stop the server
            os.write(_STDOUT_FD, f"{at} {verb} {shown} {status} {seconds * 1000:.1f} ms\n".encode())
            if os.fstat(_STDOUT_FD).st_size > MAX_BYTES:
                self._rotate()

    def _rotate(self) -> None:
        old = self._path.lstat()
        ours = [fd for fd in (_STDOUT_FD, _STDERR_FD) if os.path.samestat(os.fstat(fd), old)]
        if _STDOUT_FD not in ours:
            return
        durable.rename(self._path, rotated_path(self._path))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        new = os.open(self._path, flags, 0o600)
        for fd in ours:
            os.dup2(new, fd)
        os.close(new)
