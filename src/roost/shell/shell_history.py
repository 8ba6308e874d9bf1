"""The lines that were typed in the shells: a file that only the user can read."""

# Not durable: a line that is lost by a power cut can be typed again

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from roost.base import safe_read
from roost.base.system import state_folder

_MAX_BYTES = 1 << 20
"""A longer file is cut to the last half of that when a shell starts."""


def history_path() -> Path:
    """Returns the path of the file, next to the lab's folder."""
    return state_folder.lab_folder().parent / "shell_history"


class ShellHistory(History):
    """The history of all shells of this user. A file that cannot be read or written is left alone.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yields the lines, newest first."""
        try:
            data = bytes(safe_read.read(self._path, max_bytes=1 << 26))
        except OSError:
            return
        lines = data.decode("utf-8", "replace").split("\n")
        if len(data) > _MAX_BYTES:
            kept = data[-_MAX_BYTES // 2 :].partition(b"\n")[2]
            with suppress(OSError):
                self._write(kept, os.O_TRUNC)
        yield from reversed([line for line in lines if line])

    def store_string(self, string: str) -> None:
        """Appends a line."""
        text = string.replace("\n", " ").strip()
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(f"{text}\n".encode("utf-8", "replace"), os.O_APPEND)

    def _write(self, data: bytes, flag: int) -> None:
        # Without O_NONBLOCK a FIFO in its place would stop the shell.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self._path, flags | flag, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
