"""Temporary folders of one command."""

# Not durable: makes and removes a folder for a while; nothing resumes from it

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "roost-check-"
_HIDDEN = ".roost-unfinished-"


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Makes a folder below TMPDIR, which is removed at the end.

    Args:
        parent: Make it there instead, hidden, so that a finished result in it can be renamed to its final
            path.

    Yields:
        The folder, and the descriptor that holds its lock. A process that works there and may outlive this
            one gets a copy of it: while a copy is open, `remove_abandoned` keeps the folder.

    Raises:
        OSError: The folder cannot be made.
    """
    path, fd = _create(parent)
    try:
        yield path, fd
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def _create(parent: Path | None) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_HIDDEN if parent else _PREFIX, dir=parent))
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:  # otherwise another process removed it before it was locked
            return path, fd
        os.close(fd)


def remove_abandoned(parent: Path | None = None) -> None:
    """Removes the folders of killed processes; those of other users remain."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{_HIDDEN if parent else _PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # of another user, or removed already
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # in use
            continue
        finally:
            os.close(fd)
