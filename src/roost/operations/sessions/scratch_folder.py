"""Folders that one command needs while it runs."""

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
    """A new folder below TMPDIR, which is removed at the end.

    Args:
        parent: Makes it there instead, hidden: what was finished in it can then be renamed to its place.

    Yields:
        The folder, and the descriptor that holds its lock. A process that works there and may outlive this
        one gets a copy of it: as long as one is open, `remove_abandoned` leaves the folder alone.

    Raises:
        OSError: It cannot be made.
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
        if os.fstat(fd).st_nlink:  # else a sweep has taken it before it was locked
            return path, fd
        os.close(fd)


def remove_abandoned(parent: Path | None = None) -> None:
    """Removes the folders of processes that were killed; those of other people stay."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{_HIDDEN if parent else _PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # somebody else's, or gone already
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # somebody works there
            continue
        finally:
            os.close(fd)
