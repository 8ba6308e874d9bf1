"""The output file of a session, as roost itself writes into it."""

# Standard library only
# Not durable: opens what the worker prints into; nothing resumes from it

from __future__ import annotations

import os

LEFT_OUT_PATTERN = rb"roost: (\d{1,3}(?:,\d{3}){0,6}) bytes of output are not kept here \(limits\.output_mb\)\n"
"""Finds a `left_out_line`, and its number. A run may print anything: what this finds must be a number."""

_PREFIX = "roost: "
_TAIL_BYTES = 4096
_LONGEST_LINE = 200


def left_out_line(num_bytes: int) -> bytes:
    """What stands in the place of output that is not kept."""
    return f"roost: {num_bytes:,} bytes of output are not kept here (limits.output_mb)\n".encode()


def rank_output_path(path: str, rank: int) -> str:
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


def last_line(path: str, begin: int) -> str:
    """The last line that a session has printed, but for those of roost's own: of a program that failed mostly
    why. Empty if there is none. For the arguments see `last_lines`."""
    return next(reversed(last_lines(path, begin)), "")


def last_lines(path: str, begin: int) -> list[str]:
    """The last lines that a session has printed, but for those of roost's own and empty ones. Each is cut to
    a few words.

    Args:
        path: The output.
        begin: Where that of the session begins, in bytes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # removed
        return []
    try:
        size = os.fstat(fd).st_size
        # What is shorter than where it began was shortened: its tail is of this session all the same.
        start = max(begin if size >= begin else 0, size - _TAIL_BYTES)
        lines = os.pread(fd, _TAIL_BYTES, start).decode(errors="replace").splitlines()
    except OSError:  # a FIFO, a terminal
        return []
    finally:
        os.close(fd)
    words = ("".join(filter(str.isprintable, line)) for line in lines if not line.startswith(_PREFIX))
    return [line.strip()[:_LONGEST_LINE] for line in words if line.strip()]


def write_line(fd: int, text: str) -> None:
    """A line of roost's own at the tail of the output."""
    try:
        os.write(fd, f"\n{_PREFIX}{text}\n".encode())
    except OSError:  # the disk that refuses the record may refuse this too; the exit code still tells
        return
