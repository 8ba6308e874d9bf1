"""The process of one mirror: its task, how it is started, and what it reports of a flush."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import IO, Any

import msgspec

from roost.base import durable
from roost.train.mirrors.sink import RunIdentity


class MirrorTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a mirror's process."""

    package: str
    kind: str
    settings: dict[str, Any]
    identity: RunIdentity
    is_flush: bool = False
    """Whether the session has ended already: the process sends what is missing, once, and prints a
    `FlushReport` as its last line."""


class FlushReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a flush."""

    rows: int = 0
    """How many rows were sent; of event files and tables those of the last step again."""
    error: str | None = None
    """Why rows are missing still; None: none is."""


def start(task: MirrorTask, *, stdout: IO[bytes] | int | None = None) -> subprocess.Popen[bytes]:
    """Starts a mirror in its own process session, so that it can be killed together with all processes that
    its library starts. Its stdin takes the end of the session.

    Args:
        task: The task.
        stdout: Where it prints; None: as the caller.
    """
    fd = _unnamed_file(msgspec.json.encode(task))
    try:
        command = [sys.executable, "-P", "-m", "roost.train.mirrors", str(fd)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, pass_fds=[fd], start_new_session=True
        )
    finally:
        os.close(fd)


def _unnamed_file(data: bytes) -> int:
    """The descriptor of a file without a name that holds ``data``. A pipe takes only 64 KiB; with more data,
    training would wait until the mirror has imported its library."""
    try:
        fd = os.memfd_create("roost-mirror")
    except (AttributeError, OSError):  # not Linux, an old C library, or a system call filter
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    durable.append(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
