"""The output file of a session, as roost itself writes into it."""

from __future__ import annotations

import os

LEFT_OUT = rb"roost: (\d{1,3}(?:,\d{3}){0,6}) bytes of output are not kept here \(limits\.output_mb\)\n"
"""Finds a `left_out_line`, and its number. A run may print anything: what this finds must be a number."""


def left_out_line(num_bytes: int) -> bytes:
    """What stands in the place of output that is not kept."""
    return f"roost: {num_bytes:,} bytes of output are not kept here (limits.output_mb)\n".encode()


def output_of(path: str, rank: int) -> str:
    """Where a rank prints: rank 0 into the output itself, rank 2 into ``_output_2.txt`` beside it."""
    stem, kind = os.path.splitext(path)  # noqa: PTH122  - pathlib would hold up each start by 3 ms
    return f"{stem}_{rank}{kind}" if rank else path


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
