"""The server's log: a line of each request, in a file that begins anew before it grows large."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from roost.base import durable

MAX_BYTES = 8 << 20
"""Then the file is set aside, in the place of the one that was before."""
_STDOUT_FD, _STDERR_FD = 1, 2


def rotated_path(path: Path) -> Path:
    """Where the file before this one is."""
    return path.with_name(f"{path.name}.1")


class AccessLog:
    """What the process writes to stdout, and to stderr if that is the same file.

    Args:
        path: The file. Where stdout is something else, as a terminal, that is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """One line of each request: never its query, its headers or its body."""
        shown = path.encode("unicode_escape").decode("ascii")[:200]
        verb = method if method.isalpha() and len(method) < 10 else "?"
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # a full disk: it serves on
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
