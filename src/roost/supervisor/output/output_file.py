"""The output file of a session, and roost's own lines in it."""

# Standard library only
# Not durable: opens what the worker prints into; nothing resumes from it

from __future__ import annotations

import os

from roost.base.text.left_out_line import LEFT_OUT_PATTERN as LEFT_OUT_PATTERN
from roost.base.text.left_out_line import left_out_line as left_out_line

_PREFIX = "roost: "
_TAIL_BYTES = 4096
_LONGEST_LINE = 200


def rank_output_path(path: str, rank: int) -> str:
    """Returns the file into which a rank prints: rank 0 into the output itself, rank 2 into ``_output_2.txt``
    in the same folder."""
    stem, kind = os.path.splitext(path)  # noqa: PTH122  - pathlib would delay each start by 3 ms
    return f"{stem}_{rank}{kind}" if rank else path


def open_output(path: str) -> int:
    """Opens the output for appending, and creates it if needed.

    Raises:
        OSError: It cannot be opened, or is a FIFO without a reader.
    """
    # O_NONBLOCK: a FIFO of that name would block the supervisor, which holds the lock, until it has a reader.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    os.set_blocking(fd, True)
    return fd


def last_line(path: str, begin: int) -> str:
    """Returns the last line that a session has printed, except roost's own: of a failed program mostly the
    cause. Empty if there is none. For the arguments see `last_lines`."""
    return next(reversed(last_lines(path, begin)), "")


def last_lines(path: str, begin: int) -> list[str]:
    """Returns the last lines that a session has printed, except roost's own and empty ones. Long lines are
    cut.

    Args:
        path: The output.
        begin: Where the session's own output begins, in bytes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # removed
        return []
    try:
        size = os.fstat(fd).st_size
        # A file shorter than `begin` was shortened: its last lines are of this session all the same.
        start = max(begin if size >= begin else 0, size - _TAIL_BYTES)
        lines = os.pread(fd, _TAIL_BYTES, start).decode(errors="replace").splitlines()
    except OSError:  # a FIFO, a terminal
        return []
    finally:
        os.close(fd)
    words = ("".join(filter(str.isprintable, line)) for line in lines if not line.startswith(_PREFIX))
    return [line.strip()[:_LONGEST_LINE] for line in words if line.strip()]


def write_line(fd: int, text: str) -> None:
    """Appends a line of roost's own to the output."""
    try:
        os.write(fd, f"\n{_PREFIX}{text}\n".encode())
    except OSError:  # the disk may refuse this as it refused the record; the exit code remains
        return
