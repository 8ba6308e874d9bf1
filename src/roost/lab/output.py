"""The output file of a session, as roost itself writes into it."""

from __future__ import annotations

import os


def open_output(path: str) -> int:
    """A descriptor for the output, made if need be.

    Raises:
        OSError: It cannot be opened, or is a FIFO that nobody reads.
    """
    # A FIFO of that name would hold us here, and with us the lock, until somebody reads it: O_NONBLOCK.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    os.set_blocking(fd, True)
    return fd


def say(fd: int, text: str) -> None:
    """A line of roost's own at the tail of the output."""
    try:
        os.write(fd, f"\nroost: {text}\n".encode())
    except OSError:  # the disk that refuses the record may refuse this too; the exit code still tells
        return
